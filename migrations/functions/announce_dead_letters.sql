-- announce_dead_letters(subscription, states, kinds, limit, token, options) -> the works handed out under this token
-- Dead and held works of which the subscription was not told yet, or whose telling failed; longest dead first. Each is
-- handed out to one caller, under a lease. What is handed out again comes alone: it may be what made its batch fail.
-- token: a fresh UUID per call; the same call sent again gets the same works. kinds null: all. states: dead, held.
-- options: {"lease_s": 120, "caller": {…}}.
create or replace function :"schema".announce_dead_letters(
	p_subscription text, p_states text[], p_kinds text[], p_limit integer, p_token uuid, p_options jsonb
)
returns table (work_id text, hand_out integer, hand_outs integer, locked_until timestamptz, work json)
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
	v_ids text[];
	v_again boolean[];
begin
	if coalesce(p_subscription, '') = '' or length(p_subscription) > 500 then
		raise exception 'subscription must be a text of 1 to 500 characters' using errcode = '22023';
	end if;
	if p_states is null or p_states = '{}' or not p_states <@ '{dead,held}' then
		raise exception 'states must be dead, held or both, not %', coalesce(p_states::text, 'null') using errcode = '22023';
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
	if p_options - '{lease_s,caller}'::text[] <> '{}' then
		raise exception 'options may hold lease_s and caller only, not %', p_options using errcode = '22023';
	end if;

	-- a call that is sent again because its answer was lost waits here until the first has ended, and finds its works
	perform pg_advisory_xact_lock(hashtextextended('n8n-nodes-idempotency:hand out:' || p_token, 0));
	return query
	select h.subject_id, h.attempt, 5, h.locked_until, work_report(w)
	from announcements h
	join work_log w on w.work_id = h.subject_id
	where h.subscription = p_subscription and h.state = 'handed_out' and h.subject = 'work' and h.token = p_token
	order by w.updated_at, w.work_id;
	if found then
		return;
	end if;

	-- nobody will report on the last hand-out of these
	for a in
		select n.* from announcements n
		where n.subscription = p_subscription and n.state = 'handed_out' and n.locked_until <= clock_timestamp() and n.attempt >= 5
		order by n.subscription, n.subject, n.subject_id
		limit 100
		for update skip locked
	loop
		perform settle_announcement(a, 'the n8n that handled it vanished', v_caller);
	end loop;

	v_now := clock_timestamp();
	-- The lock on the work keeps two callers apart where there is no announcement to lock yet. "skip locked": who finds
	-- a work being handed out, or claimed, comes back to it in the next round.
	select array_agg(c.work_id order by c.nth), array_agg(c.again order by c.nth) into v_ids, v_again
	from (
		select f.*, row_number() over () as nth
		from (
			select w.work_id, coalesce(n.episode = episode_of(w), false) as again
			from work_log w
			left join announcements n on n.subscription = p_subscription and n.subject = 'work' and n.subject_id = w.work_id
			where w.state in ('dead', 'held') and not w.stub
				and w.state = any(p_states) and (p_kinds is null or w.kind = any(p_kinds))
				and announcement_due(n, episode_of(w), v_now)
			order by w.updated_at
			limit p_limit
			for no key update of w skip locked
		) f
	) c;
	if v_ids is null then
		return;
	end if;
	v_ids := case when v_again[1] then v_ids[1:1]
		else array(select u.id from unnest(v_ids, v_again) as u(id, again) where not u.again) end;

	v_now := clock_timestamp();
	return query
	with handed as (
		insert into announcements as n (
			subscription, subject, subject_id, episode, state, attempt, token, locked_until, announced_at, updated_at
		)
		select p_subscription, 'work', w.work_id, episode_of(w), 'handed_out', 1, p_token,
			v_now + make_interval(secs => v_lease_s), v_now, v_now
		from work_log w
		where w.work_id = any(v_ids)
		order by w.work_id collate "C"
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
		select h.subject_id, 'announce', 'handed_out', w.generation, w.attempt, v_caller, claim_findings(w),
			jsonb_strip_nulls(jsonb_build_object('subscription', h.subscription, 'handOut', h.attempt, 'before', h.last_error))
		from handed h
		join work_log w on w.work_id = h.subject_id
	)
	select h.subject_id, h.attempt, 5, h.locked_until, work_report(w)
	from handed h
	join work_log w on w.work_id = h.subject_id
	order by w.updated_at, w.work_id;
end
$$;
