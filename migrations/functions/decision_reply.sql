-- decision_reply(ord, decision_key, decision, outcome, more) -> the answer to an operation on a decision
-- A value is handed out where there is one and it is the one that was stored; the token to the one who decides.
create or replace function :"schema".decision_reply(
	p_ord integer, p_key text, d :"schema".llm_decisions, p_outcome text, p_more jsonb
)
returns setof :"schema".decision_answer
language sql stable
as $$
	select
		p_ord, p_key, p_outcome, d.state, d.generation, d.attempt,
		case when p_outcome = 'decide' then d.token end,
		d.locked_until,
		case when p_outcome <> 'altered' then d.value end, case when p_outcome <> 'altered' then d.value_hash end,
		d.reason, d.decided_at, d.expires_at,
		case when d.decision_key is not null then decision_owner(d) end, d.approver, d.judged_at,
		p_more
$$;
