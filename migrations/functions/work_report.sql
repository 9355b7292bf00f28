-- work_report(work) -> everything about a work as one json: what list and explain show
-- json, not jsonb: a result may hold NUL. Times in UTC.
create or replace function :"schema".work_report(w :"schema".work_log)
returns json
language sql stable
as $$
	select json_build_object(
		'workId', w.work_id, 'kind', w.kind, 'version', w.version, 'key', w.key,
		'state', w.state, 'generation', w.generation, 'attempt', w.attempt, 'maxAttempts', w.max_attempts,
		'onLapse', w.on_lapse, 'window', w.window_mode,
		'lockedUntil', case when w.state = 'running' then utc(w.locked_until) end,
		'lapsed', w.state = 'running' and w.locked_until <= clock_timestamp(),
		'nextAttemptAt', utc(w.next_attempt_at),
		'outcomeKnown', w.outcome_known, 'settledBy', w.settled_by, 'lastError', w.last_error,
		'externalRef', w.external_ref, 'decisionKey', w.decision_key, 'result', w.result, 'resultPurged', w.stub,
		'payload', w.payload,
		'owner', owner_of(w),
		'createdAt', utc(w.created_at), 'firstStartedAt', utc(w.first_started_at), 'claimedAt', utc(w.claimed_at),
		'updatedAt', utc(w.updated_at), 'completedAt', utc(w.completed_at), 'lastDoneAt', utc(w.last_done_at)
	)
$$;
