-- message_unsent(message, state, error, retry_at) -> the message after an attempt of which nothing arrived
-- state: not_sent or refused. Where an attempt before it may have arrived, that doubt stays: unknown.
create or replace function :"schema".message_unsent(
	m :"schema".sent_messages, p_state text, p_error text, p_retry_at timestamptz
)
returns :"schema".sent_messages
language plpgsql
as $$
declare
	v_now timestamptz := clock_timestamp();
begin
	update sent_messages s set
		state = case when s.doubt then 'unknown' else p_state end,
		locked_until = null, retry_at = p_retry_at, last_error = coalesce(p_error, s.last_error), updated_at = v_now,
		expires_at = case
			when s.doubt then null
			-- a part of it is out: as long as a message is remembered
			when s.message_ids <> '{}' then v_now + make_interval(secs => s.window_s)
			else v_now + interval '30 days'
		end
	where s.message_ref = m.message_ref
	returning * into m;
	return m;
end
$$;
