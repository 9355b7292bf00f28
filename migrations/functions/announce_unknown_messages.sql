-- announce_unknown_messages(subscription, limit, token, options) -> the messages handed out under this token
-- Messages that may have arrived, of which the subscription was not told yet, or whose telling failed; longest unknown
-- first. What announce_dead_letters is for works: one caller, a lease, what comes again comes alone, the same call sent
-- again gets the same messages; extend_announcements and settle_announcements with the subject 'message'.
-- options: {"lease_s": 120, "caller": {…}}.
create or replace function :"schema".announce_unknown_messages(
	p_subscription text, p_limit integer, p_token uuid, p_options jsonb
)
returns table (message_ref text, hand_out integer, hand_outs integer, locked_until timestamptz, message json)
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set plan_cache_mode = force_custom_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
	a announcements;
	v_lease_s double precision := coalesce((p_options ->> 'lease_s')::double precision, 120);
	v_caller jsonb := coalesce(p_options -> 'caller', '{}');
	v_now timestamptz;
	v_refs text[];
	v_again boolean[];
begin
	if coalesce(p_subscription, '') = '' or length(p_subscription) > 500 then
		raise exception 'subscription must be a text of 1 to 500 characters' using errcode = '22023';
	end if;
	if not (coalesce(p_limit, 0) between 1 and 100) then
		raise exception 'limit must be from 1 to 100, not %', coalesce(p_limit::text, 'null') using errcode = '22023';
	end if;
	if p_token is null then
		raise exception 'token must be a fresh UUID, not null' using errcode = '22023';
	end if;
	if not (v_lease_s > 0 and v_lease_s <= 86400) then
		raise exception 'lease_s must be above 0 and at most 86400 (a day), not %', v_lease_s using errcode = '22023';
	end if;

	-- the same call sent again waits here until the first has ended, and finds its messages
	perform pg_advisory_xact_lock(hashtextextended('n8n-nodes-idempotency:hand out:' || p_token, 0));
	return query
	select h.subject_id, h.attempt, 5, h.locked_until, message_report(m)
	from announcements h
	join sent_messages m on m.message_ref = h.subject_id
	where h.subscription = p_subscription and h.state = 'handed_out' and h.subject = 'message' and h.token = p_token
	order by m.updated_at, m.message_ref;
	if found then
		return;
	end if;

	-- what is over is forgotten: resolved, sent anew or moved to another chat
	delete from announcements n
	using (
		select o.subscription, o.subject_id
		from announcements o
		where o.subscription = p_subscription and o.subject = 'message' and o.state <> 'handed_out'
			and not exists (select 1 from sent_messages m where m.message_ref = o.subject_id and m.state = 'unknown')
		order by o.subject_id
		limit 100
		for update of o skip locked
	) past
	where n.subscription = past.subscription and n.subject = 'message' and n.subject_id = past.subject_id;

	-- nobody will report on the last hand-out of these
	for a in
		select n.* from announcements n
		where n.subscription = p_subscription and n.subject = 'message' and n.state = 'handed_out'
			and n.locked_until <= clock_timestamp() and n.attempt >= 5
		order by n.subject_id
		limit 100
		for update skip locked
	loop
		perform settle_announcement(a, 'the n8n that handled it vanished', v_caller);
	end loop;

	v_now := clock_timestamp();
	select array_agg(c.message_ref order by c.nth), array_agg(c.again order by c.nth) into v_refs, v_again
	from (
		select f.*, row_number() over () as nth
		from (
			select m.message_ref, coalesce(n.episode = message_episode(m), false) as again
			from sent_messages m
			left join announcements n on n.subscription = p_subscription and n.subject = 'message' and n.subject_id = m.message_ref
			where m.state = 'unknown' and announcement_due(n, message_episode(m), v_now)
			order by m.updated_at
			limit p_limit
			for no key update of m skip locked
		) f
	) c;
	if v_refs is null then
		return;
	end if;
	v_refs := case when v_again[1] then v_refs[1:1]
		else array(select u.ref from unnest(v_refs, v_again) as u(ref, again) where not u.again) end;

	v_now := clock_timestamp();
	return query
	with handed as (
		insert into announcements as n (
			subscription, subject, subject_id, episode, state, attempt, token, locked_until, announced_at, updated_at
		)
		select p_subscription, 'message', m.message_ref, message_episode(m), 'handed_out', 1, p_token,
			v_now + make_interval(secs => v_lease_s), v_now, v_now
		from sent_messages m
		where m.message_ref = any(v_refs)
		order by m.message_ref
		on conflict (subscription, subject, subject_id) do update set
			episode = excluded.episode,
			attempt = case when n.episode = excluded.episode then n.attempt + 1 else 1 end,
			announced_at = case when n.episode = excluded.episode then n.announced_at else excluded.announced_at end,
			last_error = case
				when n.episode <> excluded.episode then null
				when n.state = 'handed_out' then 'the n8n that handled it vanished'
				else n.last_error
			end,
			state = 'handed_out', token = excluded.token, locked_until = excluded.locked_until, next_attempt_at = null,
			updated_at = excluded.updated_at
		-- judged anew on the row as it is: another caller may have been faster
		where announcement_due(n, excluded.episode, v_now)
		returning n.*
	), logged as (
		insert into decision_log (work_id, event, outcome, generation, attempt, fired, checked, detail)
		select h.subject_id, 'announce', 'handed_out', m.generation, m.attempt, v_caller, jsonb_build_object('found', m.state),
			jsonb_strip_nulls(jsonb_build_object('subscription', h.subscription, 'handOut', h.attempt, 'before', h.last_error))
		from handed h
		join sent_messages m on m.message_ref = h.subject_id
	)
	select h.subject_id, h.attempt, 5, h.locked_until, message_report(m)
	from handed h
	join sent_messages m on m.message_ref = h.subject_id
	order by m.updated_at, m.message_ref;
end
$$;
