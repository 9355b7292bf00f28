-- message_ref(bot, chat_id, message_key) -> the name of a message: sha256, hex
create or replace function :"schema".message_ref(p_bot text, p_chat_id text, p_message_key text)
returns text
language sql immutable
as $$
	select encode(sha256(convert_to('message:v1:' || p_bot || ':' || p_chat_id || ':' || p_message_key, 'UTF8')), 'hex')
$$;
