-- claim_work(work_id, key, token, payload, detail, options) -> claim_answer (one row)
-- One work, one round trip. detail: {"match": {field: digest}, "decision_key": text}; options: see read_claim_options.
-- Its own path, because the common answers (new, duplicate, busy) need no lock and no plan of a batch; whatever changes
-- an existing row is decided by claim_works, under the row's lock.
create or replace function :"schema".claim_work(
	p_work_id text, p_key text, p_token uuid, p_payload json, p_detail jsonb, p_options jsonb
)
returns setof :"schema".claim_answer
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
-- a plan cached while the table was empty would scan it for ever
set enable_seqscan = off
as $$
declare
	t claim_terms := read_claim_options(p_options);
	v_shadow boolean := t.checked ? 'shadow';
	w work_log;
	v_now timestamptz := clock_timestamp();
	v_outcome text;
begin
	if p_token is null then
		raise exception 'token must be a fresh UUID, not null' using errcode = '22023';
	end if;
	if p_detail - '{match,decision_key}'::text[] <> '{}' then
		raise exception 'detail may hold match and decision_key only, not %', p_detail using errcode = '22023';
	end if;
	-- capitals would be a second identity of the same work
	if octet_length(p_work_id) <> 64 or p_work_id <> lower(p_work_id) or jsonb_typeof(p_detail -> 'match') <> 'object' then
		raise exception 'work_id must be 64 lower-case hexadecimal digits, and match an object' using errcode = '23514';
	end if;
	insert into work_log (
		work_id, kind, version, key, state, token, locked_until,
		window_mode, lease_s, on_lapse, max_attempts, backoff_base_s, backoff_cap_s,
		payload, match, decision_key,
		instance, workflow, workflow_name, execution, parent_execution, node, mode, run_id,
		created_at, updated_at, first_started_at, claimed_at
	) values (
		p_work_id, t.kind, t.version, left(p_key, 1000), 'running', p_token, v_now + t.lease,
		t.window_mode, t.lease_s, case when v_shadow then 'shadow' else t.on_lapse end, t.max_attempts, t.backoff_base_s, t.backoff_cap_s,
		case when not v_shadow then p_payload end, p_detail -> 'match', p_detail ->> 'decision_key',
		t.caller ->> 'instance', t.caller ->> 'workflow', t.caller ->> 'workflow_name', t.caller ->> 'execution',
		t.caller ->> 'parent_execution', t.caller ->> 'node', t.caller ->> 'mode', t.caller ->> 'run_id',
		v_now, v_now, v_now, v_now
	) on conflict (work_id) do nothing;

	if found then
		-- the insert may have waited for another transaction that then gave up: a lease counts from the lock
		if clock_timestamp() > v_now + interval '100 milliseconds' then
			v_now := clock_timestamp();
			update work_log set locked_until = v_now + t.lease, claimed_at = v_now, updated_at = v_now
			where work_id = p_work_id;
		end if;
		insert into decision_log (work_id, event, outcome, generation, attempt, token, fired, checked)
		values (p_work_id, 'claim', 'claimed', 1, 1, p_token, t.caller, t.checked);
		return next row(0, p_work_id, 'claimed', 'running', 1, 1, p_token, v_now + t.lease, null, null, null, null, null, null, null,
			'{}')::claim_answer;
		return;
	end if;

	select * into w from work_log where work_id = p_work_id;
	if found then
		v_outcome := claim_outcome(w, p_token, p_detail -> 'match', t.window_mode, t.window_s, t.other_done_at, clock_timestamp());
		if w.on_lapse = 'shadow' then
			v_outcome := meet_shadow_claim(w, v_outcome, v_shadow, t.on_lapse, t.max_attempts);
		end if;
		if v_outcome in ('duplicate', 'in_progress', 'not_due', 'mismatch', 'held', 'dead') then
			if not (t.poll and v_outcome in ('in_progress', 'not_due')) then
				insert into decision_log (work_id, event, outcome, generation, attempt, token, fired, checked)
				values (p_work_id, 'claim', v_outcome, w.generation, w.attempt, p_token, t.caller,
					t.checked || claim_findings(w));
			end if;
			return query select * from claim_reply(0, w, v_outcome, t.caller, p_detail -> 'match');
			return;
		end if;
	end if;

	return query select * from claim_works(
		array[p_work_id], array[p_key], array[p_token], array[p_payload], array[p_detail], p_options);
end
$$;
