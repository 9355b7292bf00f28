-- message_rank(message) -> which of two rows of one message stands when two chats turn out to be one: the higher
create or replace function :"schema".message_rank(m :"schema".sent_messages)
returns integer
language sql immutable
as $$
	select case m.state when 'sent' then 60 when 'sending' then 50 when 'unknown' then 40 when 'reserved' then 30
		when 'not_sent' then 20 else 10 end + least(cardinality(m.message_ids), 9)
$$;
