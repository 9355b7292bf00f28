-- ledger_statistics(kind, since_s) -> json [{kind, state, count, oldestAt, lapsed}, …] and what duplicates were suppressed
-- {"works": […], "decisions": [{kind, event, outcome, count}, …], "sinceSeconds": n}. kind null: all. Counts are text.
-- What was decided in shadow mode, and so suppressed nothing, is counted apart and says "shadow": true.
create or replace function :"schema".ledger_statistics(p_kind text, p_since_s double precision)
returns json
language plpgsql stable security definer
set search_path = :"schema", pg_temp
as $$
begin
	if not (p_since_s between 0 and 3.2e9) then
		raise exception 'since_s must be from 0 to 3.2e9, not %', p_since_s using errcode = '22023';
	end if;
	return json_build_object(
		'works', coalesce((
			select json_agg(json_build_object('kind', s.kind, 'state', s.state, 'count', s.count::text,
				'oldestAt', utc(s.oldest), 'lapsed', s.lapsed::text) order by s.kind, s.state)
			from (
				select w.kind, w.state, count(*), min(w.updated_at) as oldest,
					count(*) filter (where w.state = 'running' and w.locked_until <= clock_timestamp()) as lapsed
				from work_log w
				where p_kind is null or w.kind = p_kind
				group by w.kind, w.state
			) s), '[]'),
		'decisions', coalesce((
			select json_agg(jsonb_build_object('kind', s.kind, 'event', s.event, 'outcome', s.outcome, 'count', s.count::text)
					|| case when s.shadow then '{"shadow": true}'::jsonb else '{}' end
				order by s.kind, s.event, s.outcome, s.shadow)
			from (
				select w.kind, d.event, d.outcome, coalesce(d.checked ? 'shadow', false) as shadow, count(*)
				from decision_log d
				left join work_log w on w.work_id = d.work_id
				where d.at > clock_timestamp() - make_interval(secs => coalesce(p_since_s, 86400))
					and (p_kind is null or w.kind = p_kind)
				group by w.kind, d.event, d.outcome, shadow
			) s), '[]'),
		'sinceSeconds', coalesce(p_since_s, 86400)
	);
end
$$;
