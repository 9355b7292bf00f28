-- decision_statistics(kind, since_s) -> json: decisions by state, what was decided, and what replay saved
-- {"decisions": [{kind, state, count}, …], "events": [{kind, event, outcome, count}, …], "saved": [{kind, calls,
-- inputTokens, outputTokens, cost, latencyMs}, …], "sinceSeconds": n}. kind null: all. Counts and sums are text.
create or replace function :"schema".decision_statistics(p_kind text, p_since_s double precision)
returns json
language plpgsql stable security definer
set search_path = :"schema", pg_temp
as $$
declare
	v_since timestamptz;
begin
	if not (p_since_s between 0 and 3.2e9) then
		raise exception 'since_s must be from 0 to 3.2e9, not %', p_since_s using errcode = '22023';
	end if;
	v_since := clock_timestamp() - make_interval(secs => coalesce(p_since_s, 86400));
	return json_build_object(
		'decisions', coalesce((
			select json_agg(json_build_object('kind', s.kind, 'state', s.state, 'count', s.count::text) order by s.kind, s.state)
			from (
				select d.kind, d.state, count(*) from llm_decisions d
				where p_kind is null or d.kind = p_kind
				group by d.kind, d.state
			) s), '[]'),
		'events', coalesce((
			select json_agg(json_build_object('kind', s.kind, 'event', s.event, 'outcome', s.outcome, 'count', s.count::text)
				order by s.kind, s.event, s.outcome)
			from (
				select d.kind, l.event, l.outcome, count(*)
				from decision_log l
				join llm_decisions d on d.decision_key = l.work_id
				where l.at > v_since and (p_kind is null or d.kind = p_kind)
				group by d.kind, l.event, l.outcome
			) s), '[]'),
		'saved', coalesce((
			select json_agg(json_build_object('kind', s.kind, 'calls', s.calls::text, 'inputTokens', s.input_tokens::text,
				'outputTokens', s.output_tokens::text, 'cost', s.cost::text, 'latencyMs', s.latency_ms::text) order by s.kind)
			from (
				select d.kind, count(*) as calls, coalesce(sum(d.input_tokens), 0) as input_tokens,
					coalesce(sum(d.output_tokens), 0) as output_tokens, coalesce(sum(d.cost), 0) as cost,
					round(coalesce(sum(d.latency_ms), 0)) as latency_ms
				from decision_log l
				join llm_decisions d on d.decision_key = l.work_id
				where l.at > v_since and l.event = 'look_up' and l.outcome = 'replay' and (p_kind is null or d.kind = p_kind)
				group by d.kind
			) s), '[]'),
		'sinceSeconds', coalesce(p_since_s, 86400)
	);
end
$$;
