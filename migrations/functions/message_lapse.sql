-- message_lapse(message, event, caller) -> the message, settled where its owner vanished
-- Never marked: free again. Marked: its request may have been made, and nobody knows whether it arrived.
-- The row must be locked by the caller.
create or replace function :"schema".message_lapse(m :"schema".sent_messages, p_event text, p_caller jsonb)
returns :"schema".sent_messages
language plpgsql
as $$
declare
	v_found text := m.state;
begin
	if m.state not in ('reserved', 'sending') or m.locked_until > clock_timestamp() then
		return m;
	end if;
	if m.state = 'reserved' then
		m := message_unsent(m, 'not_sent', 'its sender vanished before it began', null);
	else
		update sent_messages set state = 'unknown', locked_until = null, expires_at = null, updated_at = clock_timestamp(),
			last_error = 'its sender vanished after it began: the message may have arrived'
		where message_ref = m.message_ref
		returning * into m;
	end if;
	perform message_log(m, p_event, m.state, m.token, p_caller, v_found, '{"lapsed": true}');
	return m;
end
$$;
