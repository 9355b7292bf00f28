-- settle_unreported(work, event, settled_by, error, due_at, caller, detail) -> the work, settled as "may have landed"
-- For a row that the caller has locked and found running, and whose owner will not report: its lease lapsed, or its
-- execution is over. By the policy stored at claim; with attempts left it is due at once, or at due_at if that is later.
create or replace function :"schema".settle_unreported(
	p_work :"schema".work_log, p_event text, p_settled_by text, p_error text, p_due_at timestamptz, p_caller jsonb, p_detail jsonb
)
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
		-- greatest passes over null
		next_attempt_at = case when v_state = 'failed' then greatest(v_now, p_due_at) end,
		last_error = case when v_state = 'done' then last_error else p_error end,
		outcome_known = (v_state = 'done'),
		settled_by = case when v_state = 'done' then 'reference' else p_settled_by end,
		payload = case when v_state = 'done' then null else payload end,
		completed_at = case when v_state = 'done' then v_now end,
		last_done_at = case when v_state = 'done' then v_now else last_done_at end,
		prior = null, prior_result = null,
		updated_at = v_now
	where work_id = p_work.work_id
	returning * into w;
	insert into decision_log (work_id, event, outcome, generation, attempt, token, fired, checked, detail, external_ref)
	values (p_work.work_id, p_event, v_state, w.generation, w.attempt, w.token, p_caller, claim_findings(p_work),
		p_detail || jsonb_strip_nulls(jsonb_build_object('nextAttemptAt', utc(w.next_attempt_at))),
		case when v_state = 'done' then w.external_ref end);
	return w;
end
$$;
