-- decision_owner(decision) -> who decides, or whose answer is stored
create or replace function :"schema".decision_owner(d :"schema".llm_decisions)
returns jsonb
language sql stable
as $$
	select jsonb_strip_nulls(jsonb_build_object(
		'instance', d.instance, 'workflow', d.workflow, 'workflowName', d.workflow_name, 'execution', d.execution,
		'parentExecution', d.parent_execution, 'node', d.node, 'mode', d.mode
	))
$$;
