-- meet_stored_decision(ord, decision, token, value, needs_approval, caller) -> the answer to an answer that comes when one is stored
-- The first stands and comes back. The same token with the same value: a resend. What was offered goes to the log.
create or replace function :"schema".meet_stored_decision(
	p_ord integer, d :"schema".llm_decisions, p_token uuid, p_value json, p_needs_approval boolean,
	p_caller jsonb
)
returns setof :"schema".decision_answer
language plpgsql
as $$
declare
	-- not the clock: an answer that has expired a moment ago is still the first
	v_standing text := decision_standing(d, null, p_needs_approval, '-infinity');
	v_repeated boolean := coalesce(d.token = p_token and d.value_hash = json_hash(p_value), false);
	v_outcome text := case v_standing when 'replay' then case when v_repeated then 'stored' else 'superseded' end
		when 'waiting' then case when v_repeated then 'proposed' else 'waiting' end else v_standing end;
begin
	if not v_repeated then
		perform log_decision(d.decision_key, d, d, 'store', 'superseded', p_token, p_caller, null, p_value);
	end if;
	return query select * from decision_reply(p_ord, d.decision_key, d, v_outcome,
		case when v_repeated then '{"repeated": true}' else '{"superseded": true}' end::jsonb);
end
$$;
