-- decision_report(decision, whole) -> everything about a decision as one json: what get and list show
-- whole false: without what its key was made of and what the model said, and without a value above 16 kB.
-- json, not jsonb: values may hold NUL. Times in UTC.
create or replace function :"schema".decision_report(d :"schema".llm_decisions, p_whole boolean)
returns json
language sql stable
as $$
	select json_build_object(
		'decisionKey', d.decision_key, 'kind', d.kind, 'parts', case when p_whole then d.parts end, 'state', d.state,
		'generation', d.generation, 'attempt', d.attempt,
		'lockedUntil', utc(d.locked_until),
		'lapsed', d.state = 'deciding' and d.locked_until <= clock_timestamp(),
		'needsApproval', d.needs_approval,
		'value', case when p_whole or octet_length(d.value::text) <= 16384 then d.value end,
		'valueBytes', octet_length(d.value::text), 'valueHash', d.value_hash,
		'altered', d.value is not null and d.value_hash is distinct from json_hash(d.value),
		'raw', case when p_whole then d.raw end, 'reason', d.reason,
		'inputTokens', d.input_tokens, 'outputTokens', d.output_tokens, 'cost', d.cost, 'latencyMs', d.latency_ms,
		'owner', decision_owner(d), 'approver', d.approver, 'judgedAt', utc(d.judged_at),
		'createdAt', utc(d.created_at), 'updatedAt', utc(d.updated_at), 'claimedAt', utc(d.claimed_at),
		'decidedAt', utc(d.decided_at), 'expiresAt', utc(d.expires_at),
		'expired', coalesce(d.expires_at <= clock_timestamp(), false)
	)
$$;
