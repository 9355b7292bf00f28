-- sweep_messages(limit, options) -> the messages whose sender vanished, as they were settled
-- Never begun: not_sent. Begun: unknown. Passes over rows that somebody else is at. options: {"caller": {…}}.
create or replace function :"schema".sweep_messages(p_limit integer, p_options jsonb)
returns table (message_ref text, chat_id text, state text, preview text, last_error text)
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
as $$
#variable_conflict use_column
declare
	m sent_messages;
begin
	for m in
		select s.* from sent_messages s
		where s.state in ('reserved', 'sending') and s.locked_until <= clock_timestamp()
		order by s.locked_until
		limit greatest(0, least(p_limit, 5000))
		for update skip locked
	loop
		m := message_lapse(m, 'sweep', p_options -> 'caller');
		if m.state not in ('reserved', 'sending') then
			return query select m.message_ref, m.chat_id, m.state, m.preview, m.last_error;
		end if;
	end loop;
end
$$;
