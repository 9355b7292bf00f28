-- mark_message(bot, chat_id, message_key, token, options) -> message_answer: sending, wait, not_owner
-- Directly before a request: from now on it counts as possibly sent. options: {"part": 1, "lease_s": 60, "rate": messages
-- per second of this bot, "max_wait_s": 10, "slot": time, "caller": {…}}. wait: nothing was marked; call again at retry_at,
-- with "slot" where "more" has one (that turn is yours). "more" says why, flood (Telegram's limit) or turn (ours), and
-- waitSeconds, by the database's clock.
create or replace function :"schema".mark_message(
	p_bot text, p_chat_id text, p_message_key text, p_token uuid, p_options jsonb
)
returns :"schema".message_answer
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set enable_seqscan = off
as $$
declare
	m sent_messages;
	v_chat text := message_chat(p_bot, p_chat_id);
	v_blocked timestamptz;
	v_part integer := coalesce((p_options ->> 'part')::integer, 1);
	v_rate double precision := coalesce((p_options ->> 'rate')::double precision, 25);
	v_max interval := make_interval(secs => coalesce((p_options ->> 'max_wait_s')::double precision, 10));
	v_given timestamptz := (p_options ->> 'slot')::timestamptz;
	v_slot timestamptz;
	v_now timestamptz;
	p message_pacing;
begin
	if not (v_rate > 0 and v_rate <= 10000) then
		raise exception 'rate must be above 0 and at most 10000 messages per second' using errcode = '22023';
	end if;
	select blocked_until into v_blocked from message_chats where bot = p_bot and chat_id = v_chat;
	select * into m from sent_messages where message_ref = message_ref(p_bot, v_chat, p_message_key) for update;
	if m.token is distinct from p_token or p_token is null or m.state not in ('reserved', 'sending')
		or cardinality(m.message_ids) <> v_part - 1 then
		if m.message_ref is null then
			m.message_ref := message_ref(p_bot, v_chat, p_message_key);
		end if;
		return message_reply(0, m, 'not_owner', '{}');
	end if;
	if m.state = 'sending' then
		-- the same call sent again
		return message_reply(0, m, 'sending', '{"repeated": true}');
	end if;

	v_now := clock_timestamp();
	if v_blocked > v_now then
		return message_wait(m, v_blocked, '{"why": "flood"}');
	end if;
	insert into message_pacing (bot, free_at) values (p_bot, v_now) on conflict do nothing;
	select * into p from message_pacing where bot = p_bot for update;
	v_now := clock_timestamp();
	if p.blocked_until > v_now then
		return message_wait(m, p.blocked_until, '{"why": "flood", "wholeBot": true}');
	end if;
	v_slot := coalesce(v_given, greatest(v_now, p.free_at));
	if v_given is null then
		if v_slot > v_now + v_max then
			return message_wait(m, v_slot, '{"why": "turn"}');
		end if;
		update message_pacing set free_at = v_slot + make_interval(secs => 1 / v_rate) where bot = p_bot;
	end if;
	if v_slot > v_now + interval '2 milliseconds' then
		return message_wait(m, v_slot, jsonb_build_object('why', 'turn', 'slot', v_slot));
	end if;
	update sent_messages set state = 'sending', sending_at = v_now, updated_at = v_now,
		locked_until = v_now + make_interval(secs => coalesce((p_options ->> 'lease_s')::double precision, 60))
	where message_ref = m.message_ref
	returning * into m;
	return message_reply(0, m, 'sending', '{}');
end
$$;
