-- resolve_messages(message_refs, arrived, message_id, options) -> message_answer per message: resolved, refused, not_found
-- A person has looked into the chat. arrived true: that part is sent (message_id may be null), the rest of a message in
-- parts goes out with the next delivery. arrived false: free again, its old sender fenced. Only unknown messages.
create or replace function :"schema".resolve_messages(
	p_message_refs text[], p_arrived boolean, p_message_id bigint, p_options jsonb
)
returns setof :"schema".message_answer
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set enable_seqscan = off
as $$
declare
	m sent_messages;
	v_now timestamptz;
	r record;
begin
	if p_arrived is null then
		raise exception 'arrived must be true or false, not null' using errcode = '22023';
	end if;
	for r in
		-- in the order in which reserve_messages locks, or the two could wait for each other
		select i.* from unnest(p_message_refs) with ordinality as i(message_ref, ord)
		left join sent_messages s on s.message_ref = i.message_ref
		order by s.chat_id collate "C", s.message_key collate "C", i.ord
	loop
		select * into m from sent_messages where message_ref = r.message_ref for update;
		if not found then
			m.message_ref := r.message_ref;
			return query select * from message_reply(r.ord::integer - 1, m, 'not_found', '{}');
			continue;
		end if;
		m := message_lapse(m, 'resolve', p_options -> 'caller');
		if m.state <> 'unknown' then
			return query select * from message_reply(r.ord::integer - 1, m, 'refused', jsonb_build_object('reason',
				case m.state
					when 'sent' then 'it is on record as sent'
					when 'sending' then 'it is being sent until ' || utc(m.locked_until)
					when 'reserved' then 'it is about to be sent'
					else 'it is known not to have been sent: it goes out with its next delivery' end));
			continue;
		end if;
		v_now := clock_timestamp();
		update sent_messages s set
			message_ids = case when p_arrived then message_ids || p_message_id else message_ids end,
			doubt = false, retry_at = null, updated_at = v_now,
			token = case when p_arrived then token end,
			state = case when p_arrived and cardinality(message_ids) + 1 = cardinality(part_hashes) then 'sent' else 'not_sent' end,
			sent_at = case when p_arrived and cardinality(message_ids) + 1 = cardinality(part_hashes) then s.sending_at end,
			expires_at = case when p_arrived or message_ids <> '{}' then v_now + make_interval(secs => window_s)
				else v_now + interval '30 days' end
		where s.message_ref = m.message_ref
		returning * into m;
		perform message_log(m, 'resolve', m.state, m.token, p_options -> 'caller', 'unknown',
			jsonb_strip_nulls(jsonb_build_object('arrived', p_arrived, 'message_id', p_message_id)));
		return query select * from message_reply(r.ord::integer - 1, m, 'resolved', '{}');
	end loop;
end
$$;
