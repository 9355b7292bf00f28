-- message_chat(bot, chat_id) -> the chat in its newest form, its row locked against a migration until the transaction ends
create or replace function :"schema".message_chat(p_bot text, p_chat_id text)
returns text
language plpgsql
as $$
declare
	v_chat text := p_chat_id;
	c message_chats;
begin
	for hops in 0..10 loop
		select * into c from message_chats where bot = p_bot and chat_id = v_chat for share;
		if not found then
			insert into message_chats (bot, chat_id) values (p_bot, v_chat) on conflict do nothing;
			select * into c from message_chats where bot = p_bot and chat_id = v_chat for share;
		end if;
		if c.moved_to is null then
			return v_chat;
		end if;
		v_chat := c.moved_to;
	end loop;
	raise exception 'the chat moved too often' using errcode = '22023';
end
$$;
