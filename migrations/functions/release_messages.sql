-- release_messages(bot, chat_ids, message_keys, tokens, options) -> message_answer per message: released, not_owner
-- Reservations that were not used: free again at once. What was marked stays. options: {"error": text, "retry_at": time,
-- "caller": {…}}.
create or replace function :"schema".release_messages(
	p_bot text, p_chat_ids text[], p_message_keys text[], p_tokens uuid[], p_options jsonb
)
returns setof :"schema".message_answer
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set enable_seqscan = off
as $$
declare
	m sent_messages;
	v_chat text;
	r record;
begin
	for r in
		select i.* from unnest(p_chat_ids, p_message_keys, p_tokens) with ordinality as i(chat_id, message_key, token, ord)
		order by i.chat_id collate "C", i.message_key collate "C", i.ord
	loop
		v_chat := message_chat(p_bot, r.chat_id);
		select * into m from sent_messages where message_ref = message_ref(p_bot, v_chat, r.message_key) for update;
		if m.token is distinct from r.token or r.token is null then
			return query select * from message_reply(r.ord::integer - 1, m, 'not_owner', '{}');
			continue;
		end if;
		if m.state = 'reserved' then
			m := message_unsent(m, 'not_sent', left(p_options ->> 'error', 1000), (p_options ->> 'retry_at')::timestamptz);
			perform message_log(m, 'release', m.state, r.token, p_options -> 'caller', 'reserved',
				jsonb_strip_nulls(jsonb_build_object('error', left(p_options ->> 'error', 1000))));
		end if;
		return query select * from message_reply(r.ord::integer - 1, m,
			case when m.state = 'sending' then 'refused' else 'released' end, '{}');
	end loop;
end
$$;
