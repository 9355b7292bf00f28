-- settle_lapse(work, event, caller) -> the work, settled by the policy stored at claim, as "may have landed"
-- For a row that the caller has locked and found running under a lapsed lease. With attempts left it is due at once.
create or replace function :"schema".settle_lapse(p_work :"schema".work_log, p_event text, p_caller jsonb)
returns :"schema".work_log
language plpgsql
as $$
declare
	w work_log;
	v_now timestamptz := clock_timestamp();
	v_state text := failure_state(p_work, 'unknown', false);
begin
	update work_log set
		state = v_state,
		locked_until = null,
		next_attempt_at = case when v_state = 'failed' then v_now end,
		last_error = case when v_state = 'done' then last_error else lapse_note(p_work) end,
		outcome_known = (v_state = 'done'),
		settled_by = case when v_state = 'done' then 'reference' else 'lapse' end,
		payload = case when v_state = 'done' then null else payload end,
		completed_at = case when v_state = 'done' then v_now end,
		last_done_at = case when v_state = 'done' then v_now else last_done_at end,
		prior = null, prior_result = null,
		updated_at = v_now
	where work_id = p_work.work_id
	returning * into w;
	insert into decision_log (work_id, event, outcome, generation, attempt, token, fired, checked, external_ref)
	values (p_work.work_id, p_event, v_state, w.generation, w.attempt, w.token, p_caller, claim_findings(p_work),
		case when v_state = 'done' then w.external_ref end);
	return w;
end
$$;
