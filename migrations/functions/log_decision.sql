-- log_decision(decision_key, found, now, event, outcome, token, caller, detail, result): a row of the decision log
-- found: the row that was looked at; now: what became of it.
create or replace function :"schema".log_decision(
	p_key text, f :"schema".llm_decisions, d :"schema".llm_decisions, p_event text, p_outcome text, p_token uuid, p_caller jsonb, p_detail jsonb,
	p_result json
)
returns void
language sql
as $$
	insert into decision_log (work_id, event, outcome, generation, attempt, token, fired, checked, detail, result)
	values (p_key, p_event, p_outcome, d.generation, d.attempt, p_token, p_caller,
		nullif(jsonb_strip_nulls(jsonb_build_object('found', f.state, 'leaseEnd', utc(f.locked_until),
			'decidedAt', utc(f.decided_at), 'owner', f.execution)), '{}'),
		nullif(jsonb_strip_nulls(p_detail), '{}'), p_result)
$$;
