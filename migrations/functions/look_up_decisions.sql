-- look_up_decisions(keys, tokens, parts, options) -> decision_answer per key (see ord)
-- outcomes: replay, decide (the caller asks the model now, under a lease), busy, waiting, rejected, altered. One round
-- trip. A key named twice: the first decides, later ones are answered as by calls of their own. A replay takes no lock.
create or replace function :"schema".look_up_decisions(
	p_keys text[], p_tokens uuid[], p_parts json[], p_options jsonb
)
returns setof :"schema".decision_answer
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
-- a plan cached while the table was empty would scan it for ever
set enable_seqscan = off
as $$
declare
	v_kind text := p_options ->> 'kind';
	v_approval boolean := coalesce((p_options ->> 'needs_approval')::boolean, false);
	v_lease_s double precision := coalesce((p_options ->> 'lease_s')::double precision, 300);
	v_poll boolean := coalesce((p_options ->> 'poll')::boolean, false);
	v_caller jsonb := coalesce(p_options -> 'caller', '{}');
	v_lease interval;
	v_now timestamptz;
	v_outcome text;
	v_before llm_decisions;
	d llm_decisions;
	r record;
begin
	if p_options - '{kind,needs_approval,lease_s,poll,caller}'::text[] <> '{}' then
		raise exception 'unknown option: %', (select string_agg(k, ', ' order by k) from jsonb_object_keys(p_options) k
			where k <> all ('{kind,needs_approval,lease_s,poll,caller}'))
			using errcode = '22023', hint = 'The options are listed in docs/sql.md.';
	end if;
	if coalesce(v_kind, '') = '' then
		raise exception 'kind must be a text, not %', coalesce(quote_literal(v_kind), 'null')
			using errcode = '22023', hint = 'Say what is decided, for example "classify-mail".';
	end if;
	if not (v_lease_s > 0 and v_lease_s <= 31622400) then
		raise exception 'lease_s must be above 0 and at most 31622400 (a year), not %', v_lease_s using errcode = '22023';
	end if;
	if cardinality(p_tokens) is distinct from cardinality(p_keys) or array_position(p_tokens, null) is not null then
		raise exception 'tokens must hold a fresh UUID for each key' using errcode = '22023';
	end if;
	v_lease := make_interval(secs => v_lease_s);

	for r in
		select i.* from unnest(p_keys, p_tokens, p_parts) with ordinality as i(key, token, parts, ord)
		order by i.key collate "C", i.ord
	loop
		select * into d from llm_decisions where decision_key = r.key;
		v_outcome := case when found then decision_standing(d, r.token, v_approval, clock_timestamp()) else 'decide' end;
		v_before := d;

		-- whatever changes the row is decided under its lock; a purge may delete it in between
		while v_outcome in ('decide', 'resend') loop
			v_now := clock_timestamp();
			insert into llm_decisions (decision_key, kind, parts, state, attempt, token, locked_until, needs_approval,
				instance, workflow, workflow_name, execution, parent_execution, node, mode, created_at, updated_at, claimed_at)
			values (r.key, v_kind, r.parts, 'deciding', 1, r.token, v_now + v_lease, v_approval,
				v_caller ->> 'instance', v_caller ->> 'workflow', v_caller ->> 'workflow_name', v_caller ->> 'execution',
				v_caller ->> 'parent_execution', v_caller ->> 'node', v_caller ->> 'mode', v_now, v_now, v_now)
			on conflict (decision_key) do nothing;
			if found then
				-- it may have waited for another transaction that then gave up: a lease counts from the lock
				if clock_timestamp() > v_now + interval '100 milliseconds' then
					v_now := clock_timestamp();
					update llm_decisions set locked_until = v_now + v_lease, claimed_at = v_now, updated_at = v_now
					where decision_key = r.key;
				end if;
				select * into d from llm_decisions where decision_key = r.key;
				v_outcome := 'decide';
				v_before := null;
				exit;
			end if;
			select * into d from llm_decisions where decision_key = r.key for update;
			continue when not found;
			v_now := clock_timestamp();
			v_outcome := decision_standing(d, r.token, v_approval, v_now);
			v_before := d;
			exit when v_outcome not in ('decide', 'resend');
			if v_outcome = 'decide' then
				if d.value is not null then
					perform log_decision(r.key, d, d, 'expire', 'expired', d.token, v_caller, jsonb_build_object(
						'approver', d.approver, 'verdict', case when d.judged_at is not null then d.state end), d.value);
				end if;
				update llm_decisions set
					state = 'deciding', kind = v_kind, parts = r.parts,
					-- of one generation any decider may store, so what one of them asked for holds for all
					needs_approval = v_approval or (d.needs_approval and d.value is null),
					generation = d.generation + (d.value is not null)::integer,
					attempt = case when d.value is null then d.attempt + 1 else 1 end,
					token = r.token, locked_until = v_now + v_lease,
					past_tokens = case when d.value is not null then '{}' when d.state = 'deciding'
						then (array_append(d.past_tokens, d.token))[greatest(1, cardinality(d.past_tokens) - 98):]
						else d.past_tokens end,
					value = null, value_hash = null, raw = null, reason = case when d.value is null then d.reason end,
					input_tokens = null, output_tokens = null, cost = null, latency_ms = null,
					approver = null, judged_at = null, decided_at = null, expires_at = null,
					instance = v_caller ->> 'instance', workflow = v_caller ->> 'workflow',
					workflow_name = v_caller ->> 'workflow_name', execution = v_caller ->> 'execution',
					parent_execution = v_caller ->> 'parent_execution', node = v_caller ->> 'node', mode = v_caller ->> 'mode',
					claimed_at = v_now, updated_at = v_now
				where decision_key = r.key
				returning * into d;
			elsif d.locked_until <= v_now then
				update llm_decisions set locked_until = v_now + v_lease, updated_at = v_now
				where decision_key = r.key returning * into d;
			end if;
			exit;
		end loop;

		-- a resend was logged the first time, a repeated look when it found something new
		if not (v_outcome = 'resend' or (v_poll and v_outcome = 'busy')) then
			perform log_decision(r.key, v_before, d, 'look_up', v_outcome, r.token, v_caller,
				case when v_outcome = 'decide' then jsonb_build_object('lastReason', v_before.reason) end, null);
		end if;
		return query select * from decision_reply(r.ord::integer - 1, r.key, d,
			case v_outcome when 'resend' then 'decide' else v_outcome end, '{}');
	end loop;
end
$$;
