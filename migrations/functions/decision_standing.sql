-- decision_standing(decision, token, needs_approval, now) -> what a look-up that meets this row means
-- resend, busy, decide (nobody does, or the lease lapsed, or the decision expired), altered (the value is not the one that
-- was stored), rejected, waiting (for approval), replay.
create or replace function :"schema".decision_standing(
	d :"schema".llm_decisions, p_token uuid, p_needs_approval boolean, p_now timestamptz
)
returns text
language sql stable
as $$
	select case
		when d.state = 'deciding' and d.token = p_token then 'resend'
		when d.state = 'deciding' and d.locked_until > p_now then 'busy'
		when d.state in ('deciding', 'open') or d.expires_at <= p_now then 'decide'
		when d.value_hash is distinct from json_hash(d.value) then 'altered'
		when d.state = 'rejected' then 'rejected'
		when d.state = 'proposed' or (d.state = 'stored' and p_needs_approval) then 'waiting'
		else 'replay'
	end
$$;
