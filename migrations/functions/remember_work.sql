-- remember_work(work) -> the row's columns that a release must be able to put back
-- Without result and payload: they may hold NUL, which jsonb refuses. Read back with jsonb_populate_record.
create or replace function :"schema".remember_work(w :"schema".work_log)
returns jsonb
language sql stable
as $$
	select jsonb_strip_nulls(jsonb_build_object(
		'state', w.state, 'generation', w.generation, 'attempt', w.attempt, 'token', w.token,
		'locked_until', w.locked_until, 'next_attempt_at', w.next_attempt_at,
		'window_mode', w.window_mode, 'lease_s', w.lease_s, 'on_lapse', w.on_lapse, 'max_attempts', w.max_attempts,
		'backoff_base_s', w.backoff_base_s, 'backoff_cap_s', w.backoff_cap_s,
		'match', w.match, 'result_hash', w.result_hash, 'external_ref', w.external_ref, 'decision_key', w.decision_key,
		'last_error', w.last_error, 'outcome_known', w.outcome_known, 'settled_by', w.settled_by, 'stub', w.stub
	) || jsonb_build_object(
		'instance', w.instance, 'workflow', w.workflow, 'workflow_name', w.workflow_name, 'execution', w.execution,
		'parent_execution', w.parent_execution, 'node', w.node, 'mode', w.mode, 'run_id', w.run_id,
		'first_started_at', w.first_started_at, 'claimed_at', w.claimed_at, 'completed_at', w.completed_at
	))
$$;
