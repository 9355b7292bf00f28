-- create_action_link(work_id, action, nonce_hash, ttl_s, external_ref, options) -> json: status created, refused or unknown_work
-- A link that does one thing to one work, once: replay, landed or not_landed. The nonce is the caller's: 128 random bits of
-- which only the sha256 comes here. It holds for the work as it stands now: what happens to the work overtakes it. The same
-- call sent again answers the same. Each creation purges a few links that expired 30 days ago.
create or replace function :"schema".create_action_link(
	p_work_id text, p_action text, p_nonce_hash text, p_ttl_s double precision, p_external_ref text, p_options jsonb
)
returns json
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set enable_seqscan = off
as $$
declare
	l action_links;
	w work_log;
	v_now timestamptz;
	v_refusal text;
begin
	if p_action is null or p_action not in ('replay', 'landed', 'not_landed') then
		raise exception 'action must be replay, landed or not_landed, not %', coalesce(quote_literal(p_action), 'null')
			using errcode = '22023';
	end if;
	-- the value itself is not shown: somebody may have sent the nonce
	if p_nonce_hash is null or p_nonce_hash !~ '^[0-9a-f]{64}$' then
		raise exception 'nonce_hash must be the sha256 of the nonce, 64 lower-case hex digits' using errcode = '22023';
	end if;
	-- "not (x > 0)" also catches NaN
	if p_ttl_s is null or not (p_ttl_s > 0 and p_ttl_s <= 2592000) then
		raise exception 'ttl_s must be above 0 and at most 2592000 (30 days), not %', coalesce(p_ttl_s::text, 'null')
			using errcode = '22023';
	end if;
	if length(p_external_ref) > 2000 then
		raise exception 'external_ref is longer than 2000 characters' using errcode = '22023';
	end if;
	if coalesce(p_external_ref, '') <> '' and p_action <> 'landed' then
		raise exception 'external_ref goes with the action landed, not with %', p_action using errcode = '22023';
	end if;

	select * into w from work_log where work_id = p_work_id;
	select * into l from action_links where nonce_hash = p_nonce_hash;
	if l.nonce_hash is null then
		v_refusal := case
			when w.work_id is null then 'the ledger holds no such work (it was released, purged or forgotten)'
			when p_action = 'replay' then replay_refusal(w, false, false)
			else resolve_refusal(w)
		end;
		if v_refusal is not null then
			return link_reply(l, w, case when w.work_id is null then 'unknown_work' else 'refused' end, v_refusal, '{}');
		end if;
		v_now := clock_timestamp();
		insert into action_links (nonce_hash, work_id, action, external_ref, state, generation, attempt, token, claimed_at,
			created_at, created_by, expires_at)
		values (p_nonce_hash, p_work_id, p_action, nullif(p_external_ref, ''), w.state, w.generation, w.attempt, w.token,
			w.claimed_at, v_now, p_options -> 'caller', v_now + make_interval(secs => p_ttl_s))
		on conflict (nonce_hash) do nothing
		returning * into l;
		if found then
			insert into decision_log (work_id, event, outcome, generation, attempt, token, fired, checked, detail, external_ref)
			values (p_work_id, 'create_link', 'created', w.generation, w.attempt, w.token, p_options -> 'caller', claim_findings(w),
				jsonb_build_object('action', p_action, 'expiresAt', utc(l.expires_at)), l.external_ref);
			delete from action_links d
			using (
				select o.nonce_hash from action_links o where o.expires_at < v_now - interval '30 days'
				order by o.expires_at limit 20
				for update skip locked
			) old
			where d.nonce_hash = old.nonce_hash;
			return link_reply(l, w, 'created', null, '{}');
		end if;
		-- the same call, sent twice at once
		select * into l from action_links where nonce_hash = p_nonce_hash;
	end if;
	if (l.work_id, l.action) is distinct from (p_work_id, p_action) then
		raise exception 'nonce_hash belongs to another link' using errcode = '22023', hint = 'Make 128 fresh random bits for every link.';
	end if;
	return link_reply(l, w, 'created', null, '{"repeated": true}');
end
$$;
