-- message_report(message) -> everything about a message as one json: what list shows
create or replace function :"schema".message_report(m :"schema".sent_messages)
returns json
language sql stable
as $$
	select json_build_object(
		'messageRef', m.message_ref, 'bot', m.bot, 'chatId', m.chat_id, 'state', m.state, 'kind', m.kind,
		'preview', m.preview, 'generation', m.generation, 'attempt', m.attempt,
		'parts', cardinality(m.part_hashes), 'sentParts', cardinality(m.message_ids), 'messageIds', m.message_ids,
		'lastError', m.last_error, 'retryAt', utc(m.retry_at), 'lockedUntil', utc(m.locked_until),
		'windowSeconds', m.window_s, 'owner', m.owner,
		'createdAt', utc(m.created_at), 'sendingAt', utc(m.sending_at), 'sentAt', utc(m.sent_at), 'updatedAt', utc(m.updated_at)
	)
$$;
