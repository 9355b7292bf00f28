-- expire_decisions(keys, options) -> decision_answer per key (see ord): expired, or refused
-- A person opens the question anew: the next look-up decides, whatever was stored or rejected. The old value goes to the
-- decision log. Who decides right now is fenced off: its answer is not stored.
create or replace function :"schema".expire_decisions(p_keys text[], p_options jsonb)
returns setof :"schema".decision_answer
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set enable_seqscan = off
as $$
declare
	v_caller jsonb := coalesce(p_options -> 'caller', '{}');
	v_now timestamptz;
	d llm_decisions;
	r record;
begin
	for r in
		select i.* from unnest(p_keys) with ordinality as i(key, ord) order by i.key collate "C", i.ord
	loop
		select * into d from llm_decisions where decision_key = r.key for update;
		v_now := clock_timestamp();
		if not found then
			return query select * from decision_reply(r.ord::integer - 1, r.key, d, 'refused',
				'{"reason": "the ledger holds no such decision"}');
			continue;
		end if;
		-- expired before, and nobody has asked since: a resend
		if d.state = 'open' and d.attempt = 0 then
			return query select * from decision_reply(r.ord::integer - 1, r.key, d, 'expired', '{"repeated": true}');
			continue;
		end if;
		perform log_decision(r.key, d, d, 'expire', 'expired', d.token, v_caller, jsonb_build_object(
			'approver', d.approver, 'verdict', case when d.judged_at is not null then d.state end), d.value);
		update llm_decisions set
			state = 'open', generation = d.generation + 1, attempt = 0, token = null, past_tokens = '{}', locked_until = null, needs_approval = false,
			value = null, value_hash = null, raw = null, reason = 'a person expired it',
			input_tokens = null, output_tokens = null, cost = null, latency_ms = null,
			approver = null, judged_at = null, decided_at = null, expires_at = null, updated_at = v_now
		where decision_key = r.key
		returning * into d;
		return query select * from decision_reply(r.ord::integer - 1, r.key, d, 'expired', '{}');
	end loop;
end
$$;
