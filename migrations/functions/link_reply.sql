-- link_reply(link, work, status, reason, more) -> what is told of an action link
-- Never the nonce's hash, nor the work's data and result: who opens the link sees what it is about, no more.
create or replace function :"schema".link_reply(
	l :"schema".action_links, w :"schema".work_log, p_status text, p_reason text, p_more jsonb
)
returns json
language sql stable
as $$
	select json_build_object(
		'status', p_status, 'reason', p_reason, 'repeated', coalesce((p_more ->> 'repeated')::boolean, false),
		'action', l.action, 'externalRef', l.external_ref,
		'createdAt', utc(l.created_at), 'expiresAt', utc(l.expires_at),
		'usedAt', utc(l.used_at), 'usedBy', l.used_by, 'outcome', l.outcome,
		'work', case when w.work_id is not null then json_build_object(
			'workId', w.work_id, 'kind', w.kind, 'version', w.version, 'key', w.key,
			'state', w.state, 'generation', w.generation, 'attempt', w.attempt, 'maxAttempts', w.max_attempts,
			'outcomeKnown', w.outcome_known, 'lastError', w.last_error, 'externalRef', w.external_ref,
			'nextAttemptAt', utc(w.next_attempt_at), 'completedAt', utc(w.completed_at), 'updatedAt', utc(w.updated_at),
			'owner', owner_of(w)
		) end
	)
$$;
