-- complete_work(work_id, token, result, external_ref, options) -> hold_answer (one row)
-- Its own path for the owner of running work; every other case is decided by complete_works under the row's lock.
-- options: {"caller": {…}}.
create or replace function :"schema".complete_work(
	p_work_id text, p_token uuid, p_result json, p_external_ref text, p_options jsonb
)
returns setof :"schema".hold_answer
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
-- a plan cached while the table was empty would scan it for ever
set enable_seqscan = off
as $$
declare
	v_kind text;
	v_key text;
	v_generation integer;
	v_attempt integer;
	v_external_ref text;
	v_completed_at timestamptz;
	v_late boolean;
	v_more jsonb;
begin
	-- the token must be in the condition: "where state = 'running'" alone lets a stale owner complete.
	-- The clock is read in the statement, so that after a wait for the row's lock it is read again.
	-- Work with a reference already recorded may hold a difference to report: the batch's path does that.
	update work_log as w set
		state = 'done', result = p_result, external_ref = nullif(p_external_ref, ''), completed_at = clock_timestamp(),
		last_done_at = clock_timestamp(), updated_at = clock_timestamp(), payload = null, prior = null,
		prior_result = null, settled_by = 'owner', outcome_known = true,
		last_error = null
	where w.work_id = p_work_id and hold_standing(w, p_token) = 'owner' and w.external_ref is null
	returning w.kind, w.key, w.generation, w.attempt, w.external_ref, w.completed_at, w.locked_until <= w.completed_at
	into v_kind, v_key, v_generation, v_attempt, v_external_ref, v_completed_at, v_late;

	if found then
		insert into decision_log (work_id, event, outcome, generation, attempt, token, fired, detail, external_ref)
		values (p_work_id, 'complete', 'completed', v_generation, v_attempt, p_token, p_options -> 'caller',
			case when v_late then '{"late": true}'::jsonb end, v_external_ref);
		v_more := jsonb_strip_nulls(jsonb_build_object('kind', v_kind, 'key', v_key));
		if v_late then
			v_more := v_more || '{"late": true}';
		end if;
		return next row(0, p_work_id, 'completed', 'done', v_generation, v_attempt, null, null, null, v_external_ref,
			v_completed_at, null, v_more)::hold_answer;
		return;
	end if;

	return query select * from complete_works(
		array[p_work_id], array[p_token], array[p_result], array[p_external_ref], p_options);
end
$$;
