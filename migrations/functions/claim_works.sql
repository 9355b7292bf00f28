-- claim_works(work_ids, keys, tokens, payloads, details, options) -> claim_answer per item, in the order given
-- Any number of works in one statement (the package sends at most 5,000). payloads and details may be null or hold nulls.
-- A work named twice: the first decides, later ones are answered as by statements of their own afterwards.
create or replace function :"schema".claim_works(
	p_work_ids text[], p_keys text[], p_tokens uuid[], p_payloads json[], p_details jsonb[], p_options jsonb
)
returns setof :"schema".claim_answer
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set plan_cache_mode = force_custom_plan
set jit = off
-- statistics of a young table lag behind: never scan it
set enable_seqscan = off
as $$
declare
	t claim_terms := read_claim_options(p_options);
	v_shadow boolean := t.checked ? 'shadow';
	v_on_lapse text := case when v_shadow then 'shadow' else t.on_lapse end;
	-- set where claim_due_works hands work out: then the policy stored with it stays
	v_subscription text := p_options ->> 'subscription';
	v_started timestamptz := clock_timestamp();
	v_now timestamptz;
	v_new text[];
	r record;
begin
	if cardinality(p_work_ids) = 0 then
		return;
	end if;
	if cardinality(p_tokens) is distinct from cardinality(p_work_ids) or array_position(p_tokens, null) is not null then
		raise exception 'tokens must hold a fresh UUID for each work_id' using errcode = '22023';
	end if;

	if exists (select 1 from unnest(p_details) d where d - '{match,decision_key}'::text[] <> '{}') then
		raise exception 'details may hold match and decision_key only' using errcode = '22023';
	end if;
	-- capitals would be a second identity of the same work
	if exists (select 1 from unnest(p_work_ids) i where octet_length(i) <> 64 or i <> lower(i))
		or exists (select 1 from unnest(p_details) d where jsonb_typeof(d -> 'match') <> 'object')
	then
		raise exception 'work_ids must be 64 lower-case hexadecimal digits, and match an object' using errcode = '23514';
	end if;

	-- Insert what is new and lock what is not, in one pass in work_id order: two batches can then never wait for each
	-- other. "do update … where false" writes nothing but takes the row's lock.
	with input as materialized (
		select distinct on (i.work_id collate "C") i.*
		from unnest(p_work_ids, p_keys, p_tokens, p_payloads, p_details) with ordinality
			as i(work_id, key, token, payload, detail, ord)
		order by i.work_id collate "C", i.ord
	), inserted as (
		insert into work_log (
			work_id, kind, version, key, state, token, locked_until,
			window_mode, lease_s, on_lapse, max_attempts, backoff_base_s, backoff_cap_s,
			payload, match, decision_key,
			instance, workflow, workflow_name, execution, parent_execution, node, mode, run_id,
			created_at, updated_at, first_started_at, claimed_at
		)
		select
			i.work_id, t.kind, t.version, left(i.key, 1000), 'running', i.token, v_started + t.lease,
			t.window_mode, t.lease_s, v_on_lapse, t.max_attempts, t.backoff_base_s, t.backoff_cap_s,
			case when not v_shadow then i.payload end, i.detail -> 'match', i.detail ->> 'decision_key',
			t.caller ->> 'instance', t.caller ->> 'workflow', t.caller ->> 'workflow_name', t.caller ->> 'execution',
			t.caller ->> 'parent_execution', t.caller ->> 'node', t.caller ->> 'mode', t.caller ->> 'run_id',
			v_started, v_started, v_started, v_started
		from input i
		order by i.work_id collate "C"
		on conflict (work_id) do update set attempt = work_log.attempt where false
		returning work_log.work_id, work_log.token
	), logged as (
		insert into decision_log (work_id, event, outcome, generation, attempt, token, fired, checked)
		select n.work_id, 'claim', 'claimed', 1, 1, n.token, t.caller, t.checked
		from inserted n
	)
	select coalesce(array_agg(n.work_id), '{}') into v_new from inserted n;

	v_now := clock_timestamp();
	-- the insert may have waited for others: a lease counts from the lock
	if v_now > v_started + interval '1 second' then
		update work_log set locked_until = v_now + t.lease, claimed_at = v_now, updated_at = v_now
		where work_id = any(v_new);
		v_started := v_now;
	end if;

	if cardinality(v_new) = cardinality(p_work_ids) then
		return query
		select i.ord::integer - 1, i.work_id, 'claimed', 'running', 1, 1, i.token, v_started + t.lease, null::timestamptz,
			null::text, null::text, null::json, null::text, null::timestamptz, null::jsonb, '{}'::jsonb
		from unnest(p_work_ids, p_tokens) with ordinality as i(work_id, token, ord)
		order by i.ord;
		return;
	end if;

	-- What was found is locked now; decide and change it in one statement.
	return query
	with input as materialized (
		select distinct on (i.work_id collate "C") i.*
		from unnest(p_work_ids, p_keys, p_tokens, p_payloads, p_details) with ordinality
			as i(work_id, key, token, payload, detail, ord)
		order by i.work_id collate "C", i.ord
	), found as materialized (
		select i.ord, i.token, i.payload, i.detail, w as work, w.work_id,
			case when w.work_id = any(v_new) then 'new'
				-- by itself: with both in one expression neither is inlined
				when w.on_lapse = 'shadow' then meet_shadow_claim(w,
					claim_outcome(w, i.token, i.detail -> 'match', t.window_mode, t.window_s, t.other_done_at, v_now),
					v_shadow, t.on_lapse, t.max_attempts)
				else claim_outcome(w, i.token, i.detail -> 'match', t.window_mode, t.window_s, t.other_done_at, v_now) end as outcome
		from input i
		join work_log w on w.work_id = i.work_id
	), changed as (
		update work_log as w set
			state = case f.outcome when 'settled' then 'done' when 'lapse_held' then 'held' when 'lapse_dead' then 'dead'
				else 'running' end,
			generation = case f.outcome when 'renewed' then w.generation + 1 else w.generation end,
			attempt = case
				-- what was let through in shadow mode uses up no attempt of those that count
				when f.outcome = 'renewed' or (f.outcome = 'retaken' and w.on_lapse = 'shadow' and not v_shadow) then 1
				when f.outcome = 'retaken' then w.attempt + 1
				else w.attempt
			end,
			token = case when f.outcome in ('renewed', 'retaken') then f.token else w.token end,
			locked_until = case
				when f.outcome = 'retaken' and v_subscription is not null then v_now + make_interval(secs => w.lease_s)
				when f.outcome in ('renewed', 'retaken') then v_now + t.lease
				when f.outcome = 'resent' and w.locked_until <= v_now then v_now + t.lease
				when f.outcome = 'resent' then w.locked_until
			end,
			next_attempt_at = null,
			window_mode = case when f.outcome in ('renewed', 'retaken') and v_subscription is null then t.window_mode else w.window_mode end,
			lease_s = case when f.outcome in ('renewed', 'retaken') and v_subscription is null then t.lease_s else w.lease_s end,
			on_lapse = case when f.outcome in ('renewed', 'retaken') and v_subscription is null then v_on_lapse else w.on_lapse end,
			max_attempts = case when f.outcome in ('renewed', 'retaken') and v_subscription is null then t.max_attempts else w.max_attempts end,
			backoff_base_s = case when f.outcome in ('renewed', 'retaken') and v_subscription is null then t.backoff_base_s else w.backoff_base_s end,
			backoff_cap_s = case when f.outcome in ('renewed', 'retaken') and v_subscription is null then t.backoff_cap_s else w.backoff_cap_s end,
			-- without a payload a work is never handed out: the business that shadow mode watches acts by itself
			payload = case
				when f.outcome = 'settled' or (f.outcome in ('renewed', 'retaken') and v_shadow) then null
				when f.outcome = 'renewed' then f.payload
				when f.outcome = 'retaken' then coalesce(f.payload, w.payload)
				else w.payload
			end,
			match = case f.outcome when 'renewed' then f.detail -> 'match'
				when 'retaken' then coalesce(f.detail -> 'match', w.match) else w.match end,
			decision_key = case f.outcome when 'renewed' then f.detail ->> 'decision_key'
				when 'retaken' then coalesce(f.detail ->> 'decision_key', w.decision_key) else w.decision_key end,
			result = case f.outcome when 'renewed' then null else w.result end,
			result_hash = case f.outcome when 'renewed' then null else w.result_hash end,
			external_ref = case f.outcome when 'renewed' then null else w.external_ref end,
			stub = case f.outcome when 'renewed' then false else w.stub end,
			last_error = case
				when f.outcome = 'renewed' then null
				when f.outcome in ('lapse_held', 'lapse_dead', 'retaken') and w.state = 'running' then lapse_note(w)
				else w.last_error
			end,
			outcome_known = case
				when f.outcome in ('renewed', 'settled') then true
				when f.outcome in ('lapse_held', 'lapse_dead') then false
				when f.outcome = 'retaken' and w.state = 'running' then false
				else w.outcome_known
			end,
			settled_by = case f.outcome when 'settled' then 'reference' when 'lapse_held' then 'lapse'
				when 'lapse_dead' then 'lapse' when 'resent' then w.settled_by end,
			-- as text, for a release: jsonb would refuse a payload's NUL
			prior = case when f.outcome in ('renewed', 'retaken') then remember_work(w) || case
					when w.payload is not null and (f.outcome = 'renewed' or f.payload is not null or v_shadow)
						then jsonb_build_object('payload_text', w.payload::text)
					else '{}' end
				when f.outcome = 'resent' then w.prior end,
			prior_result = case f.outcome when 'renewed' then w.result when 'resent' then w.prior_result end,
			instance = case when f.outcome in ('renewed', 'retaken') then t.caller ->> 'instance' else w.instance end,
			workflow = case when f.outcome in ('renewed', 'retaken') then t.caller ->> 'workflow' else w.workflow end,
			workflow_name = case when f.outcome in ('renewed', 'retaken') then t.caller ->> 'workflow_name' else w.workflow_name end,
			execution = case when f.outcome in ('renewed', 'retaken') then t.caller ->> 'execution' else w.execution end,
			parent_execution = case when f.outcome in ('renewed', 'retaken') then t.caller ->> 'parent_execution' else w.parent_execution end,
			node = case when f.outcome in ('renewed', 'retaken') then t.caller ->> 'node' else w.node end,
			mode = case when f.outcome in ('renewed', 'retaken') then t.caller ->> 'mode' else w.mode end,
			run_id = case when f.outcome in ('renewed', 'retaken') then t.caller ->> 'run_id' else w.run_id end,
			first_started_at = case f.outcome when 'renewed' then v_now else w.first_started_at end,
			claimed_at = case when f.outcome in ('renewed', 'retaken') then v_now else w.claimed_at end,
			completed_at = case f.outcome when 'settled' then v_now when 'renewed' then null else w.completed_at end,
			last_done_at = case f.outcome when 'settled' then v_now else w.last_done_at end,
			updated_at = v_now
		from found f
		where w.work_id = f.work_id
			and f.outcome in ('renewed', 'retaken', 'settled', 'lapse_held', 'lapse_dead', 'resent')
		returning w.work_id, w as work
	), logged as (
		insert into decision_log (work_id, event, outcome, generation, attempt, token, fired, checked, detail, result, external_ref)
		select f.work_id, 'claim', a.status, coalesce((c.work).generation, (f.work).generation),
			coalesce((c.work).attempt, (f.work).attempt), f.token, t.caller,
			case when v_subscription is null then t.checked
				else jsonb_build_object('window', jsonb_build_object('mode', (f.work).window_mode)) end || claim_findings(f.work),
			jsonb_strip_nulls(jsonb_build_object('how', nullif(f.outcome, a.status), 'subscription', v_subscription, 'before',
				case when f.outcome in ('renewed', 'retaken') then remember_work(f.work) end)),
			-- what a new generation clears from the row stays here
			case when f.outcome = 'renewed' then (f.work).result end,
			case when f.outcome in ('renewed', 'settled') then (f.work).external_ref end
		from found f
		left join changed c on c.work_id = f.work_id
		cross join lateral claim_reply(0, coalesce(c.work, f.work), f.outcome, t.caller, f.detail -> 'match') a
		where f.outcome not in ('new', 'resent')
			and not (t.poll and f.outcome in ('in_progress', 'not_due'))
	)
	select a.*
	from found f
	left join changed c on c.work_id = f.work_id
	cross join lateral claim_reply(f.ord::integer - 1, coalesce(c.work, f.work), f.outcome, t.caller, f.detail -> 'match') a
	order by f.ord;

	for r in
		select i.* from (
			select u.*, row_number() over (partition by u.work_id order by u.ord) as nth
			from unnest(p_work_ids, p_keys, p_tokens, p_payloads, p_details) with ordinality
				as u(work_id, key, token, payload, detail, ord)
		) i
		where i.nth > 1
		order by i.ord
	loop
		return query
		select r.ord::integer - 1, a.work_id, a.status, a.state, a.generation, a.attempt, a.token, a.locked_until,
			a.next_attempt_at, a.previous_outcome, a.last_error, a.result, a.external_ref, a.completed_at, a.owner, a.more
		from claim_work(r.work_id, r.key, r.token, r.payload, r.detail, p_options) a;
	end loop;
end
$$;
