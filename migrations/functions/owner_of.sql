-- owner_of(work) -> who holds the work, or did it
create or replace function :"schema".owner_of(w :"schema".work_log)
returns jsonb
language sql stable
as $$
	select jsonb_strip_nulls(jsonb_build_object(
		'instance', w.instance, 'workflow', w.workflow, 'workflowName', w.workflow_name,
		'execution', w.execution, 'parentExecution', w.parent_execution,
		'node', w.node, 'mode', w.mode, 'runId', w.run_id,
		'claimedAt', utc(w.claimed_at)
	))
$$;
