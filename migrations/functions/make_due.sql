-- make_due(work, event, again, caller, detail) -> the work: due now, attempts reset, its old owner fenced
-- For a row that the caller has locked. again: a new generation, the old result cleared (it goes to the decision log).
create or replace function :"schema".make_due(
	p_work :"schema".work_log, p_event text, p_again boolean, p_caller jsonb, p_detail jsonb
)
returns :"schema".work_log
language plpgsql
as $$
declare
	w work_log;
	v_now timestamptz := clock_timestamp();
begin
	update work_log set
		state = 'failed',
		generation = case when p_again then generation + 1 else generation end,
		attempt = 0,
		-- whoever held it can no longer write to it
		token = null,
		locked_until = null,
		next_attempt_at = v_now,
		result = case when p_again then null else result end,
		result_hash = case when p_again then null else result_hash end,
		external_ref = null,
		last_error = case when p_again then null else last_error end,
		stub = false,
		completed_at = null,
		-- of a new generation nothing has happened yet; of running work nobody knows
		outcome_known = case when p_again then true when state = 'running' then false else outcome_known end,
		settled_by = 'person',
		prior = null, prior_result = null,
		updated_at = v_now
	where work_id = p_work.work_id
	returning * into w;
	insert into decision_log (work_id, event, outcome, generation, attempt, token, fired, checked, detail, result, external_ref)
	values (w.work_id, p_event, 'due', w.generation, w.attempt, p_work.token, p_caller, claim_findings(p_work),
		p_detail || jsonb_strip_nulls(jsonb_build_object('waitsForDelivery', case when w.payload is null then true end)),
		case when p_again then p_work.result end, p_work.external_ref);
	return w;
end
$$;
