-- message_episode(message) -> one time that this message became unknown: what a subscription is told of once
create or replace function :"schema".message_episode(m :"schema".sent_messages)
returns text
language sql stable
as $$
	select m.generation || '.' || m.attempt || '.' || cardinality(m.message_ids)
$$;
