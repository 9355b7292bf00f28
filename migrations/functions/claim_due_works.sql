-- claim_due_works(subscription, kinds, tokens, options) -> failed works that are due, claimed: the answer and the work
-- At most as many as there are tokens, longest due first. Only what can be handed out: with its stored payload, no stub,
-- and not a lock (only while running). What manual runs claimed apart from production goes to who names its kind only. A work goes to one caller; the policy stored with it stays. Sent again with the
-- same tokens it gives what they hold. kinds null: all. options: {"caller": {…}}.
create or replace function :"schema".claim_due_works(
	p_subscription text, p_kinds text[], p_tokens uuid[], p_options jsonb
)
returns table (answer json, work json)
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set plan_cache_mode = force_custom_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
	v_caller jsonb := coalesce(p_options -> 'caller', '{}');
	v_count integer := cardinality(p_tokens);
	v_ids text[];
begin
	if coalesce(p_subscription, '') = '' or length(p_subscription) > 500 then
		raise exception 'subscription must be a text of 1 to 500 characters' using errcode = '22023';
	end if;
	if not (coalesce(v_count, 0) between 1 and 100) or array_position(p_tokens, null) is not null then
		raise exception 'tokens must hold 1 to 100 fresh UUIDs' using errcode = '22023';
	end if;
	if p_options - '{caller}'::text[] <> '{}' then
		raise exception 'options may hold caller only, not %', p_options using errcode = '22023';
	end if;

	-- a call that is sent again because its answer was lost waits here until the first has ended, and finds its works
	perform pg_advisory_xact_lock(hashtextextended('n8n-nodes-idempotency:hand out:' || p_tokens[1], 0));
	return query
	select to_json(r), work_report(w)
	from work_log w
	cross join lateral claim_reply(array_position(p_tokens, w.token) - 1, w, 'resent', v_caller, null) r
	where w.state = 'running' and w.token = any(p_tokens)
	order by r.ord;
	if found then
		return;
	end if;

	select array_agg(f.work_id order by f.next_attempt_at, f.work_id) into v_ids
	from (
		select w.work_id, w.next_attempt_at
		from work_log w
		where w.state = 'failed' and w.next_attempt_at <= clock_timestamp()
			and w.payload is not null and not w.stub and w.window_mode <> 'while_running'
			and (w.kind = any(p_kinds) or (p_kinds is null and w.kind not like '% (manual test)'))
		order by w.next_attempt_at
		limit v_count
		for update skip locked
	) f;
	if v_ids is null then
		return;
	end if;
	-- the rows are locked and stand: nothing of the kind given here is ever inserted
	return query
	select to_json(r), work_report(w)
	from claim_works(v_ids, array_fill(null::text, array[cardinality(v_ids)]), p_tokens[1:cardinality(v_ids)], null, null,
		jsonb_build_object('kind', 'handed out', 'caller', v_caller, 'subscription', p_subscription)) r
	join work_log w on w.work_id = r.work_id
	where r.status = 'claimed'
	order by r.ord;
end
$$;
