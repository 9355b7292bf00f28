-- settle_message(bot, chat_id, message_key, token, outcome, message_id, options) -> message_answer: recorded, not_owner
-- What became of a request. outcome: sent (with its message_id) · not_sent (nothing left: free again) · refused (Telegram
-- said no: free again) · unknown (it may have arrived) · flooded (429: the reservation stays, the chat is left alone for
-- retry_after_s, with "whole_bot" the bot). options: {"part": 1, "error": text, "retry_after_s": number, "lease_s": 600,
-- "whole_bot": false, "caller": {…}}.
create or replace function :"schema".settle_message(
	p_bot text, p_chat_id text, p_message_key text, p_token uuid, p_outcome text, p_message_id bigint, p_options jsonb
)
returns :"schema".message_answer
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set enable_seqscan = off
as $$
declare
	m sent_messages;
	v_before sent_messages;
	v_chat text;
	v_part integer := coalesce((p_options ->> 'part')::integer, 1);
	v_error text := left(p_options ->> 'error', 1000);
	v_lease interval := make_interval(secs => coalesce((p_options ->> 'lease_s')::double precision, 600));
	v_until timestamptz;
	v_now timestamptz;
begin
	if p_outcome is null or p_outcome <> all ('{sent,not_sent,refused,unknown,flooded}') then
		raise exception 'outcome must be sent, not_sent, refused, unknown or flooded' using errcode = '22023';
	end if;
	if p_outcome = 'flooded' then
		-- it is written below: two that share it first would wait for each other
		perform 1 from message_chats where bot = p_bot and chat_id = p_chat_id for no key update;
	end if;
	v_chat := message_chat(p_bot, p_chat_id);
	if p_outcome = 'flooded' then
		v_until := clock_timestamp() + make_interval(secs =>
			least(greatest(coalesce((p_options ->> 'retry_after_s')::double precision, 1), 0), 86400));
		update message_chats set blocked_until = greatest(blocked_until, v_until) where bot = p_bot and chat_id = v_chat;
	end if;
	select * into m from sent_messages where message_ref = message_ref(p_bot, v_chat, p_message_key) for update;
	v_before := m;
	v_now := clock_timestamp();
	if m.token is distinct from p_token or p_token is null then
		if m.message_ref is null then
			m.message_ref := message_ref(p_bot, v_chat, p_message_key);
			m.chat_id := v_chat;
			m.bot := p_bot;
		end if;
		-- a second copy may be out: where it is, is in the log
		perform message_log(m, 'send', 'not_owner', p_token, p_options -> 'caller', v_before.state, jsonb_strip_nulls(
			jsonb_build_object('offered', p_outcome, 'part', v_part, 'message_id', p_message_id, 'error', v_error)));
		return message_reply(0, m, 'not_owner', '{}');
	end if;

	if cardinality(m.message_ids) >= v_part then
		-- this part is on record: the same call again, or a person was faster and did not know the id
		if p_outcome = 'sent' and m.message_ids[v_part] is null and p_message_id is not null then
			update sent_messages set message_ids[v_part] = p_message_id, updated_at = v_now
			where message_ref = m.message_ref returning * into m;
		end if;
		return message_reply(0, m, 'recorded', '{"repeated": true}');
	end if;
	if m.state = p_outcome or (p_outcome <> 'sent' and m.state <> 'sending') then
		return message_reply(0, m, 'recorded', '{"repeated": true}');
	end if;

	case p_outcome
		when 'sent' then
			update sent_messages set
				message_ids = message_ids || p_message_id,
				state = case when v_part = cardinality(part_hashes) then 'sent' else 'reserved' end,
				locked_until = case when v_part = cardinality(part_hashes) then null else v_now + v_lease end,
				sent_at = case when v_part = cardinality(part_hashes) then v_now end,
				expires_at = case when v_part = cardinality(part_hashes) then v_now + make_interval(secs => window_s) end,
				doubt = false, last_error = null, retry_at = null, updated_at = v_now
			where message_ref = m.message_ref
			returning * into m;
		when 'not_sent' then
			m := message_unsent(m, 'not_sent', v_error, null);
		when 'refused' then
			m := message_unsent(m, 'refused', v_error, null);
		when 'unknown' then
			update sent_messages set state = 'unknown', locked_until = null, last_error = v_error, updated_at = v_now, expires_at = null
			where message_ref = m.message_ref
			returning * into m;
		when 'flooded' then
			update sent_messages set state = 'reserved', locked_until = greatest(v_until, v_now) + v_lease, last_error = v_error,
				retry_at = v_until, updated_at = v_now
			where message_ref = m.message_ref
			returning * into m;
	end case;
	perform message_log(m, 'send', p_outcome, p_token, p_options -> 'caller', v_before.state, jsonb_strip_nulls(
		jsonb_build_object('part', v_part, 'message_id', p_message_id, 'error', v_error)));
	if p_outcome = 'flooded' and coalesce((p_options ->> 'whole_bot')::boolean, false) then
		-- after the message's row, as mark_message does
		insert into message_pacing as p (bot, free_at, blocked_until) values (p_bot, v_until, v_until)
		on conflict (bot) do update set blocked_until = greatest(p.blocked_until, v_until);
	end if;
	return message_reply(0, m, 'recorded', '{}');
end
$$;
