-- free_decisions(keys, tokens, raws, reasons, options) -> decision_answer per key (see ord): not_stored, or what stands
-- The model's answer cannot be used: the key is free at once, and the next look-up decides. What the model said goes to
-- the decision log. Where another answer was stored meanwhile, that one comes back (superseded, waiting, rejected).
create or replace function :"schema".free_decisions(
	p_keys text[], p_tokens uuid[], p_raws json[], p_reasons text[], p_options jsonb
)
returns setof :"schema".decision_answer
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set enable_seqscan = off
as $$
declare
	v_caller jsonb := coalesce(p_options -> 'caller', '{}');
	v_reason text;
	d llm_decisions;
	r record;
begin
	if cardinality(p_tokens) is distinct from cardinality(p_keys) then
		raise exception 'tokens must hold one token (or null) for each key' using errcode = '22023';
	end if;
	for r in
		select i.* from unnest(p_keys, p_tokens, p_raws, p_reasons) with ordinality as i(key, token, raw, reason, ord)
		order by i.key collate "C", i.ord
	loop
		v_reason := left(coalesce(nullif(r.reason, ''), 'no reason given'), 4000);
		select * into d from llm_decisions where decision_key = r.key for update;
		if d.value is not null then
			return query select * from meet_stored_decision(r.ord::integer - 1, d, r.token, r.raw, d.needs_approval, v_caller);
			continue;
		end if;
		if d.state = 'deciding' and d.token = r.token then
			update llm_decisions set state = 'open', locked_until = null, reason = v_reason,
				-- it may still come with a good answer, as one whose lease has lapsed may
				past_tokens = (array_append(d.past_tokens, d.token))[greatest(1, cardinality(d.past_tokens) - 98):],
				token = null, updated_at = clock_timestamp()
			where decision_key = r.key;
			perform log_decision(r.key, d, d, 'store', 'not_stored', r.token, v_caller, jsonb_build_object('reason', v_reason), r.raw);
			select * into d from llm_decisions where decision_key = r.key;
		elsif not coalesce(d.state = 'open' and r.token = d.past_tokens[cardinality(d.past_tokens)] and d.reason = v_reason, false) then
			-- somebody else decides by now: nothing is freed, what was said is kept
			perform log_decision(r.key, d, d, 'store', 'not_stored', r.token, v_caller, jsonb_build_object('reason', v_reason), r.raw);
		end if;
		return query select * from decision_reply(r.ord::integer - 1, r.key, d, 'not_stored', jsonb_build_object('reason', v_reason));
	end loop;
end
$$;
