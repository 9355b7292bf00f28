-- judge_decision(key, approve, approver, reason, value_hash, options) -> decision_answer (one row)
-- outcomes: approved, rejected, stands (judged before, otherwise or by somebody else; see state), refused (nothing to judge).
-- First verdict stands; the same one again by the same approver is a resend. value_hash (or null): what the approver saw.
create or replace function :"schema".judge_decision(
	p_key text, p_approve boolean, p_approver text, p_reason text, p_value_hash text, p_options jsonb
)
returns setof :"schema".decision_answer
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set enable_seqscan = off
as $$
declare
	v_caller jsonb := coalesce(p_options -> 'caller', '{}');
	v_verdict text := case when p_approve then 'approved' else 'rejected' end;
	v_now timestamptz;
	v_refusal text;
	v_found llm_decisions;
	d llm_decisions;
begin
	if p_approve is null then
		raise exception 'approve must be true or false, not null' using errcode = '22023';
	end if;
	-- a link that a program opened names nobody
	if coalesce(p_approver, '') !~ '[^[:space:]]' or length(p_approver) > 500 then
		raise exception 'approver must be a text of 1 to 500 characters' using errcode = '22023',
			hint = 'Say who decided: without an approver nothing is approved or rejected.';
	end if;
	select * into d from llm_decisions where decision_key = p_key for update;
	v_now := clock_timestamp();
	v_refusal := case
		when d.decision_key is null then 'the ledger holds no such decision'
		when d.value is null then 'nothing is decided yet'
		when d.expires_at <= v_now then 'it expired at ' || utc(d.expires_at)
		when d.value_hash is distinct from json_hash(d.value) then 'its value was changed after it was stored'
		when p_value_hash <> d.value_hash then 'it is not the value that was shown to the approver'
	end;
	if v_refusal is not null then
		perform log_decision(p_key, d, d, 'judge', 'refused', null, v_caller,
			jsonb_build_object('verdict', v_verdict, 'approver', p_approver, 'reason', v_refusal), null);
		return query select * from decision_reply(0, p_key, d, 'refused', jsonb_build_object('reason', v_refusal));
	elsif d.state in ('approved', 'rejected') then
		if d.state = v_verdict and d.approver = p_approver then
			return query select * from decision_reply(0, p_key, d, v_verdict, '{"repeated": true}');
			return;
		end if;
		perform log_decision(p_key, d, d, 'judge', 'stands', null, v_caller,
			jsonb_build_object('verdict', v_verdict, 'approver', p_approver, 'reason', p_reason), null);
		return query select * from decision_reply(0, p_key, d, 'stands', '{}');
	else
		v_found := d;
		update llm_decisions set state = v_verdict, approver = p_approver, judged_at = v_now,
			reason = left(nullif(p_reason, ''), 4000), updated_at = v_now
		where decision_key = p_key
		returning * into d;
		perform log_decision(p_key, v_found, d, 'judge', v_verdict, null, v_caller,
			jsonb_build_object('approver', p_approver, 'reason', d.reason, 'valueHash', d.value_hash), null);
		return query select * from decision_reply(0, p_key, d, v_verdict, '{}');
	end if;
end
$$;
