-- claim_findings(work) -> what a claim looked at, for the decision log
create or replace function :"schema".claim_findings(w :"schema".work_log)
returns jsonb
language sql stable
as $$
	select jsonb_strip_nulls(jsonb_build_object(
		'found', w.state,
		'leaseEnd', utc(w.locked_until),
		'nextAttemptAt', utc(w.next_attempt_at),
		'completedAt', utc(w.completed_at),
		'owner', w.execution
	))
$$;
