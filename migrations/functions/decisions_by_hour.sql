-- decisions_by_hour(kind, hours) -> json [{at, claimed, duplicates, failed}, …]: the last clock hours, oldest first
-- Exactly so many entries, hours without a decision as zeros; the last is the hour that is going on. at: its beginning in
-- UTC. duplicates: claims that were told "duplicate" or "in progress", so an effect was suppressed. failed: attempts that
-- ended without success, by report, sweep or failed execution, or found lapsed by a claim. Shadow mode suppresses nothing
-- and is left out. kind null: all. Counts are text.
create or replace function :"schema".decisions_by_hour(p_kind text, p_hours integer)
returns json
language plpgsql stable security definer
set search_path = :"schema", pg_temp
as $$
declare
	v_now timestamptz := clock_timestamp();
	v_first timestamptz;
begin
	if p_hours is null or p_hours not between 1 and 744 then
		raise exception 'hours must be from 1 to 744, not %', coalesce(p_hours::text, 'null') using errcode = '22023';
	end if;
	-- date_bin, not date_trunc: the session's time zone must not move the hours
	v_first := date_bin('1 hour', v_now, 'epoch') - make_interval(hours => p_hours - 1);
	return (
		with counted as (
			select date_bin('1 hour', d.at, 'epoch') as hour,
				count(*) filter (where d.event = 'claim' and d.outcome = 'claimed') as claimed,
				count(*) filter (where d.event = 'claim' and d.outcome in ('duplicate', 'in_progress')) as duplicates,
				count(*) filter (where
					(d.event in ('fail', 'fail_execution', 'sweep') and d.outcome in ('failed', 'dead', 'held'))
					or (d.event = 'claim' and (d.detail ->> 'how' in ('lapse_held', 'lapse_dead')
						or (d.detail ->> 'how' = 'retaken' and d.checked ->> 'found' = 'running')))) as failed
			from decision_log d
			where d.at >= v_first and d.at <= v_now
				and d.event in ('claim', 'fail', 'fail_execution', 'sweep')
				and not coalesce(d.checked ? 'shadow', false)
				and (p_kind is null or exists (select from work_log w where w.work_id = d.work_id and w.kind = p_kind))
			group by 1
		)
		select json_agg(json_build_object('at', utc(h.hour), 'claimed', coalesce(c.claimed, 0)::text,
			'duplicates', coalesce(c.duplicates, 0)::text, 'failed', coalesce(c.failed, 0)::text) order by h.hour)
		from generate_series(v_first, v_first + make_interval(hours => p_hours - 1), interval '1 hour') h(hour)
		left join counted c on c.hour = h.hour
	);
end
$$;
