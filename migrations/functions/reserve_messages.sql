-- reserve_messages(bot, chat_ids, message_keys, tokens, details, options) -> message_answer per message (see ord)
-- Before anything is sent. details: {"content_hash": hex, "part_hashes": [hex, …], "kind": text, "preview": text}.
-- options: {"window_s": seconds or null (forever), "lease_s": 600, "resend_unknown": false, "caller": {…}}.
-- A message named twice: the first decides, later ones are answered in_progress.
create or replace function :"schema".reserve_messages(
	p_bot text, p_chat_ids text[], p_message_keys text[], p_tokens uuid[], p_details jsonb[], p_options jsonb
)
returns setof :"schema".message_answer
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set enable_seqscan = off
as $$
declare
	m sent_messages;
	v_window double precision := (p_options ->> 'window_s')::double precision;
	v_lease interval := make_interval(secs => coalesce((p_options ->> 'lease_s')::double precision, 600));
	v_resend boolean := coalesce((p_options ->> 'resend_unknown')::boolean, false);
	v_now timestamptz;
	v_chat text;
	v_ref text;
	v_found text;
	v_outcome text;
	v_more jsonb;
	v_same boolean;
	v_inside boolean;
	v_hashes text[];
	v_chats text[];
	r record;
begin
	if p_options - '{window_s,lease_s,resend_unknown,caller}'::text[] <> '{}' then
		raise exception 'options may hold window_s, lease_s, resend_unknown and caller only' using errcode = '22023';
	end if;
	if not (coalesce(v_window, 1) between 1 and 3.2e9 and extract(epoch from v_lease) between 1 and 31622400) then
		raise exception 'window_s must be from 1 to 3.2e9 or null, lease_s from 1 to 31622400' using errcode = '22023';
	end if;
	if cardinality(p_chat_ids) > 5000 then
		raise exception 'at most 5000 messages per call' using errcode = '22023';
	end if;
	if coalesce(p_bot, '') = '' or cardinality(p_tokens) is distinct from cardinality(p_chat_ids)
		or cardinality(p_message_keys) is distinct from cardinality(p_chat_ids)
		or cardinality(p_details) is distinct from cardinality(p_chat_ids)
		or array_position(p_tokens, null) is not null or array_position(p_chat_ids, null) is not null
		or array_position(p_message_keys, null) is not null or array_position(p_details, null) is not null then
		raise exception 'every message needs a bot, a chat, a key, a fresh UUID as its token, and details' using errcode = '22023';
	end if;
	if exists (select 1 from unnest(p_details) d where coalesce(d ->> 'content_hash', '') = ''
			or jsonb_typeof(d -> 'part_hashes') is distinct from 'array' or jsonb_array_length(d -> 'part_hashes') not between 1 and 1000) then
		raise exception 'details need a content_hash, and part_hashes of 1 to 1000 parts' using errcode = '22023';
	end if;

	-- in their newest form first: a chat that is asked for by its old and its new id is locked in one order all the same
	v_chats := array(select unnest(p_chat_ids));
	for r in
		select i.* from unnest(p_chat_ids) with ordinality as i(chat_id, ord) order by i.chat_id collate "C", i.ord
	loop
		v_chats[r.ord] := message_chat(p_bot, r.chat_id);
	end loop;
	for r in
		select i.* from unnest(p_chat_ids, p_message_keys, p_tokens, p_details, v_chats) with ordinality
			as i(chat_id, message_key, token, detail, newest, ord)
		order by i.newest collate "C", i.message_key collate "C", i.ord
	loop
		v_hashes := array(select jsonb_array_elements_text(r.detail -> 'part_hashes'));
		v_chat := r.newest;
		v_ref := message_ref(p_bot, v_chat, r.message_key);
		v_more := case when v_chat <> r.chat_id then jsonb_build_object('movedFrom', r.chat_id) else '{}'::jsonb end;
		loop
			v_now := clock_timestamp();
			insert into sent_messages (message_ref, bot, chat_id, message_key, state, token, locked_until,
				content_hash, part_hashes, kind, preview, window_s, owner, created_at, updated_at)
			values (v_ref, p_bot, v_chat, r.message_key, 'reserved', r.token, v_now + v_lease,
				r.detail ->> 'content_hash', v_hashes, r.detail ->> 'kind', left(r.detail ->> 'preview', 200), v_window,
				p_options -> 'caller', v_now, v_now)
			on conflict (message_ref) do nothing
			returning * into m;
			v_found := null;
			exit when found;
			select * into m from sent_messages where message_ref = v_ref for update;
			v_found := m.state;
			-- else it was forgotten between the two statements
			exit when found;
		end loop;
		-- both may have waited for others: a lease counts from the lock
		v_now := clock_timestamp();

		if v_found is null then
			v_outcome := 'reserved';
			if m.locked_until < v_now + v_lease - interval '1 second' then
				update sent_messages set locked_until = v_now + v_lease where message_ref = v_ref returning * into m;
			end if;
		elsif m.state = 'reserved' and m.token = r.token then
			-- the same call sent again
			update sent_messages set locked_until = v_now + v_lease where message_ref = v_ref returning * into m;
			return query select * from message_reply(r.ord::integer - 1, m, 'reserved',
				v_more || jsonb_build_object('copyPossible', m.doubt));
			continue;
		else
			m := message_lapse(m, 'reserve', p_options -> 'caller');
			v_same := m.part_hashes = v_hashes;
			v_inside := v_window is null or coalesce(m.sent_at, m.sending_at, m.updated_at) + make_interval(secs => v_window) > v_now;
			if m.content_hash is distinct from r.detail ->> 'content_hash' then
				v_more := v_more || '{"contentDiffers": true}';
			end if;
			v_outcome := case
				when m.state in ('reserved', 'sending') then 'in_progress'
				when m.state = 'sent' and v_inside then 'duplicate'
				when m.state = 'unknown' and v_inside and not v_resend then 'unknown'
				-- what is out, or may be, was another text under the same key: its rest would not fit
				when v_inside and not v_same and (m.state = 'unknown' or m.message_ids <> '{}') then 'mismatch'
				when m.state in ('not_sent', 'refused') and (v_inside or m.message_ids = '{}') then 'retaken'
				when m.state = 'unknown' and v_inside then 'retaken'
				else 'renewed'
			end;
			if v_outcome in ('retaken', 'renewed') then
				update sent_messages set
					state = 'reserved', token = r.token, locked_until = v_now + v_lease, retry_at = null,
					generation = case v_outcome when 'renewed' then generation + 1 else generation end,
					attempt = case v_outcome when 'renewed' then 1 else attempt + 1 end,
					doubt = v_outcome = 'retaken' and m.state = 'unknown',
					message_ids = case v_outcome when 'renewed' then '{}' else message_ids end,
					sent_at = null, last_error = null,
					content_hash = r.detail ->> 'content_hash', part_hashes = v_hashes,
					kind = r.detail ->> 'kind', preview = left(r.detail ->> 'preview', 200),
					window_s = v_window, owner = p_options -> 'caller', updated_at = v_now, expires_at = null
				where message_ref = v_ref
				returning * into m;
				v_outcome := 'reserved';
			end if;
		end if;
		if m.doubt and v_outcome = 'reserved' then
			v_more := v_more || '{"copyPossible": true}';
		end if;
		perform message_log(m, 'reserve', v_outcome, r.token, p_options -> 'caller', v_found, v_more);
		return query select * from message_reply(r.ord::integer - 1, m, v_outcome, v_more);
	end loop;

	-- what nobody can ask for any more is forgotten here, a little with every call; an hour of grace for long batches
	delete from sent_messages s
	using (
		select f.ctid as row_id from sent_messages f
		where f.expires_at <= clock_timestamp() - interval '1 hour'
		limit 2 * cardinality(p_chat_ids)
		for update skip locked
	) old
	where s.ctid = old.row_id;
end
$$;
