-- message_reply(ord, message, status, more) -> message_answer
create or replace function :"schema".message_reply(p_ord integer, m :"schema".sent_messages, p_status text, p_more jsonb)
returns :"schema".message_answer
language sql stable
as $$
	select p_ord, m.message_ref, m.chat_id, p_status, m.state, m.generation, m.attempt, m.locked_until, m.retry_at,
		m.message_ids, cardinality(m.part_hashes), m.sent_at, m.last_error,
		jsonb_strip_nulls(jsonb_build_object('owner', m.owner)) || p_more
$$;
