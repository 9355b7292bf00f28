-- follow_chat(bot, old_chat_id, new_chat_id, message_key, token, options) -> message_answer: reserved, duplicate,
-- in_progress, unknown, not_owner
-- A group became a supergroup (Telegram's migrate_to_chat_id). Remembers it, and moves what is known of the old chat to the
-- new one: from now on both ids are one. The message that met the change was not sent: its reservation goes along, unless
-- the same message is known under the new id. options: {"lease_s": 600, "caller": {…}}.
create or replace function :"schema".follow_chat(
	p_bot text, p_old_chat_id text, p_new_chat_id text, p_message_key text, p_token uuid, p_options jsonb
)
returns :"schema".message_answer
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
as $$
declare
	m sent_messages;
	v_old message_chats;
	v_new text;
	v_status text;
begin
	if p_old_chat_id is null or p_new_chat_id is null or p_old_chat_id = p_new_chat_id then
		raise exception 'a chat moves to another one' using errcode = '22023';
	end if;
	insert into message_chats (bot, chat_id)
	select p_bot, c.chat_id from unnest(array[p_old_chat_id, p_new_chat_id]) as c(chat_id) order by c.chat_id collate "C"
	on conflict do nothing;
	-- both, so that nobody reserves in either meanwhile; in the order in which reserve_messages locks them
	perform 1 from message_chats where bot = p_bot and chat_id in (p_old_chat_id, p_new_chat_id) order by chat_id for update;
	select * into v_old from message_chats where bot = p_bot and chat_id = p_old_chat_id;
	v_new := message_chat(p_bot, p_new_chat_id);
	if v_new = p_old_chat_id then
		-- Telegram names a chat that moved here: nothing to remember, and nothing was sent
		select * into m from sent_messages
		where message_ref = message_ref(p_bot, p_old_chat_id, p_message_key) and token = p_token and state = 'sending' for update;
		m := message_unsent(m, 'not_sent', 'the chat moves in a circle', null);
		return message_reply(0, m, 'not_owner', '{}');
	end if;
	-- not sent: Telegram refused it for its address
	update sent_messages set state = 'reserved', updated_at = clock_timestamp(), locked_until = clock_timestamp()
		+ make_interval(secs => coalesce((p_options ->> 'lease_s')::double precision, 600))
	-- another worker may have moved it already
	where message_ref in (message_ref(p_bot, p_old_chat_id, p_message_key), message_ref(p_bot, v_new, p_message_key))
		and token = p_token and state = 'sending';

	if v_old.moved_to is null then
		update message_chats set moved_to = v_new where bot = p_bot and chat_id = p_old_chat_id;
		-- once in a chat's life; of two rows of one message the one that says more stands
		perform 1 from sent_messages where bot = p_bot and chat_id in (p_old_chat_id, v_new) order by message_ref for update;
		delete from sent_messages o using sent_messages n
		where o.bot = p_bot and o.chat_id = p_old_chat_id
			and n.message_ref = message_ref(p_bot, v_new, o.message_key) and message_rank(n) >= message_rank(o);
		delete from sent_messages n using sent_messages o
		where o.bot = p_bot and o.chat_id = p_old_chat_id and n.message_ref = message_ref(p_bot, v_new, o.message_key);
		update sent_messages set chat_id = v_new, message_ref = message_ref(p_bot, v_new, message_key)
		where bot = p_bot and chat_id = p_old_chat_id;
	end if;

	select * into m from sent_messages where message_ref = message_ref(p_bot, v_new, p_message_key) for update;
	if not found then
		m.message_ref := message_ref(p_bot, v_new, p_message_key);
		m.chat_id := v_new;
		m.bot := p_bot;
	end if;
	m := message_lapse(m, 'migrate', p_options -> 'caller');
	v_status := case
		when m.token = p_token and m.state = 'reserved' then 'reserved'
		when m.state = 'sent' then 'duplicate'
		when m.state in ('reserved', 'sending') then 'in_progress'
		when m.state = 'unknown' then 'unknown'
		else 'not_owner'
	end;
	perform message_log(m, 'migrate', v_status, p_token, p_options -> 'caller', m.state,
		jsonb_build_object('from', p_old_chat_id, 'to', v_new));
	return message_reply(0, m, v_status, jsonb_build_object('movedFrom', p_old_chat_id));
end
$$;
