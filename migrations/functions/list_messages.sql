-- list_messages(filter, limit, cursor) -> json {"messages": [{…}, …], "cursor": text or null}
-- Newest change first, page by page. filter: {"states": […], "bot": text, "chat": text, "text": part of the preview}.
-- cursor: that of the page before.
create or replace function :"schema".list_messages(p_filter jsonb, p_limit integer, p_cursor text)
returns json
language plpgsql stable security definer
set search_path = :"schema", pg_temp
as $$
declare
	v_limit integer := greatest(1, least(coalesce(p_limit, 50), 1000));
	v_chats text[];
	v_at timestamptz;
	v_ref text;
	v_messages json;
	v_next text;
	v_count integer;
begin
	if p_filter - '{states,bot,chat,text}'::text[] <> '{}' then
		raise exception 'filter may hold states, bot, chat and text only' using errcode = '22023';
	end if;
	if exists (select 1 from jsonb_array_elements_text(coalesce(p_filter -> 'states', '[]')) s
			where s <> all ('{reserved,sending,sent,not_sent,refused,unknown}')) then
		raise exception 'states must be of reserved, sending, sent, not_sent, refused and unknown, not %', p_filter -> 'states'
			using errcode = '22023';
	end if;
	select c.at, c.id into v_at, v_ref from read_page_cursor(p_cursor) c;
	-- a group is found by its old id, too
	v_chats := array(
		select p_filter ->> 'chat'
		union
		select c.moved_to from message_chats c where c.chat_id = p_filter ->> 'chat' and c.moved_to is not null
	);
	with page as materialized (
		select m as message, m.updated_at, m.message_ref
		from sent_messages m
		where (p_filter -> 'states' is null or p_filter -> 'states' ? m.state)
			and (p_filter ->> 'bot' is null or m.bot = p_filter ->> 'bot')
			and (p_filter ->> 'chat' is null or m.chat_id = any (v_chats))
			and (p_filter ->> 'text' is null or position(lower(p_filter ->> 'text') in lower(m.preview)) > 0)
			and (v_ref is null or (m.updated_at, m.message_ref) < (v_at, v_ref))
		order by m.updated_at desc, m.message_ref desc
		limit v_limit
	)
	select json_agg(message_report(p.message) order by p.updated_at desc, p.message_ref desc), count(*),
		(array_agg(page_cursor(p.updated_at, p.message_ref) order by p.updated_at, p.message_ref))[1]
	into v_messages, v_count, v_next
	from page p;
	return json_build_object('messages', coalesce(v_messages, '[]'), 'cursor', case when v_count = v_limit then v_next end);
end
$$;
