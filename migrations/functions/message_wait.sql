-- message_wait(message, until, more) -> the answer "wait"
create or replace function :"schema".message_wait(m :"schema".sent_messages, p_until timestamptz, p_more jsonb)
returns :"schema".message_answer
language plpgsql
as $$
declare
	a message_answer := message_reply(0, m, 'wait', p_more || jsonb_build_object('waitSeconds',
		greatest(0, extract(epoch from p_until - clock_timestamp()))));
begin
	a.retry_at := p_until;
	return a;
end
$$;
