-- fail_execution(instance, executions, error, options) -> one row per running work that was settled
-- What an error workflow says: these executions are over. Their work is settled as a lapse is ("may have landed", due at
-- once). Work of their sub-workflows too, one level down, but that is not due before its lease ends: the child may live.
create or replace function :"schema".fail_execution(
	p_instance text, p_executions text[], p_error text, p_options jsonb
)
returns table (
	work_id text, kind text, key text, state text, attempt integer, next_attempt_at timestamptz, child boolean
)
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
as $$
#variable_conflict use_column
declare
	w work_log;
	v_before work_log;
	v_now timestamptz;
	v_state text;
	v_child boolean;
	v_ids text[];
	v_id text;
begin
	select array_agg(f.work_id order by f.work_id collate "C") into v_ids
	from work_log f
	where f.state = 'running' and f.instance is not distinct from p_instance
		and (f.execution = any(p_executions) or f.parent_execution = any(p_executions));

	foreach v_id in array coalesce(v_ids, '{}') loop
		select * into w from work_log f where f.work_id = v_id for update;
		v_now := clock_timestamp();
		-- it may have been completed or claimed anew while this waited for the lock
		if not found or w.state <> 'running' or w.instance is distinct from p_instance
			or not (coalesce(w.execution = any(p_executions), false) or coalesce(w.parent_execution = any(p_executions), false)) then
			continue;
		end if;
		v_before := w;
		v_child := not coalesce(w.execution = any(p_executions), false);
		v_state := failure_state(w, 'unknown', false);
		update work_log f set
			state = v_state,
			locked_until = null,
			next_attempt_at = case when v_state = 'failed' then
				case when v_child then greatest(v_now, w.locked_until) else v_now end end,
			last_error = case when v_state = 'done' then f.last_error else left(coalesce(p_error, 'the execution failed'), 4000) end,
			outcome_known = (v_state = 'done'),
			settled_by = case when v_state = 'done' then 'reference' else 'execution' end,
			payload = case when v_state = 'done' then null else f.payload end,
			completed_at = case when v_state = 'done' then v_now end,
			last_done_at = case when v_state = 'done' then v_now else f.last_done_at end,
			prior = null, prior_result = null,
			updated_at = v_now
		where f.work_id = v_id
		returning * into w;
		insert into decision_log (work_id, event, outcome, generation, attempt, token, fired, checked, detail, external_ref)
		values (v_id, 'fail_execution', v_state, w.generation, w.attempt, w.token, p_options -> 'caller',
			claim_findings(v_before),
			jsonb_strip_nulls(jsonb_build_object('error', left(p_error, 4000), 'executions', to_jsonb(p_executions),
				'child', case when v_child then true end, 'nextAttemptAt', utc(w.next_attempt_at))),
			case when v_state = 'done' then w.external_ref end);
		return query select w.work_id, w.kind, w.key, w.state, w.attempt, w.next_attempt_at, v_child;
	end loop;
end
$$;
