-- store_decisions(keys, tokens, values, raws, details, options) -> decision_answer per key (see ord)
-- outcomes: stored, proposed (waits for approval), superseded (another answer was first; it comes back), waiting, rejected,
-- altered (likewise, where the first may not be applied), not_stored. First stored wins, also when it is that of a decider
-- whose lease had lapsed. details: {"needs_approval", "ttl_s", "input_tokens", "output_tokens", "cost", "latency_ms"}.
create or replace function :"schema".store_decisions(
	p_keys text[], p_tokens uuid[], p_values json[], p_raws json[], p_details jsonb[], p_options jsonb
)
returns setof :"schema".decision_answer
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set enable_seqscan = off
as $$
declare
	v_caller jsonb := coalesce(p_options -> 'caller', '{}');
	v_now timestamptz;
	v_ttl_s double precision;
	v_found llm_decisions;
	d llm_decisions;
	r record;
begin
	if cardinality(p_tokens) is distinct from cardinality(p_keys) then
		raise exception 'tokens must hold one token (or null) for each key' using errcode = '22023';
	end if;
	if exists (select 1 from unnest(p_details) i
			where i - '{needs_approval,ttl_s,input_tokens,output_tokens,cost,latency_ms}'::text[] <> '{}') then
		raise exception 'details may hold needs_approval, ttl_s, input_tokens, output_tokens, cost and latency_ms only'
			using errcode = '22023';
	end if;
	for r in
		select i.* from unnest(p_keys, p_tokens, p_values, p_raws, p_details) with ordinality
			as i(key, token, value, raw, detail, ord)
		order by i.key collate "C", i.ord
	loop
		if r.value is null then
			raise exception 'value must be JSON, not null' using errcode = '22023', hint = 'Use free_decisions where there is no value.';
		end if;
		v_ttl_s := (r.detail ->> 'ttl_s')::double precision;
		if not (v_ttl_s > 0 and v_ttl_s <= 3.2e9) then
			raise exception 'ttl_s must be above 0 and at most 3.2e9 (100 years), not %', v_ttl_s using errcode = '22023';
		end if;
		select * into d from llm_decisions where decision_key = r.key for update;
		v_now := clock_timestamp();
		if d.value is not null then
			return query select * from meet_stored_decision(r.ord::integer - 1, d, r.token, r.value,
				coalesce((r.detail ->> 'needs_approval')::boolean, false), v_caller);
			continue;
		end if;
		if d.decision_key is null or not (coalesce(r.token = d.token, false) or coalesce(r.token = any(d.past_tokens), false)) then
			perform log_decision(r.key, d, d, 'store', 'not_stored', r.token, v_caller,
				'{"reason": "the token is of no look-up that is open"}', r.value);
			return query select * from decision_reply(r.ord::integer - 1, r.key, d, 'not_stored', jsonb_build_object('reason',
				'the ledger knows of no open look-up with this token: the decision was expired or purged meanwhile'));
			continue;
		end if;
		v_found := d;
		update llm_decisions set
			state = case when d.needs_approval or coalesce((r.detail ->> 'needs_approval')::boolean, false)
				then 'proposed' else 'stored' end,
			token = r.token, locked_until = null, value = r.value, value_hash = json_hash(r.value), raw = r.raw, reason = null,
			input_tokens = (r.detail ->> 'input_tokens')::bigint, output_tokens = (r.detail ->> 'output_tokens')::bigint,
			cost = (r.detail ->> 'cost')::numeric,
			latency_ms = coalesce((r.detail ->> 'latency_ms')::double precision,
				-- of a late decider nobody knows when it began
				case when r.token = d.token and d.state = 'deciding' then extract(epoch from v_now - d.claimed_at) * 1000 end),
			instance = v_caller ->> 'instance', workflow = v_caller ->> 'workflow',
			workflow_name = v_caller ->> 'workflow_name', execution = v_caller ->> 'execution',
			parent_execution = v_caller ->> 'parent_execution', node = v_caller ->> 'node', mode = v_caller ->> 'mode',
			decided_at = v_now, updated_at = v_now, expires_at = v_now + make_interval(secs => v_ttl_s)
		where decision_key = r.key
		returning * into d;
		perform log_decision(r.key, v_found, d, 'store', d.state, r.token, v_caller, null, null);
		return query select * from decision_reply(r.ord::integer - 1, r.key, d, d.state, '{}');
	end loop;
end
$$;
