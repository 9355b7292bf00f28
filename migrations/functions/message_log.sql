-- message_log(message, event, outcome, token, caller, found, detail): one row in the decision log
-- found: the state before. Its generation, attempt and parts are those after the decision.
create or replace function :"schema".message_log(
	m :"schema".sent_messages, p_event text, p_outcome text, p_token uuid, p_caller jsonb, p_found text, p_detail jsonb
)
returns void
language sql
as $$
	insert into decision_log (work_id, event, outcome, generation, attempt, token, fired, checked, detail)
	values (m.message_ref, p_event, p_outcome, m.generation, m.attempt, p_token, p_caller,
		jsonb_strip_nulls(jsonb_build_object('found', p_found, 'window_s', m.window_s)),
		jsonb_strip_nulls(jsonb_build_object('bot', m.bot, 'chat', m.chat_id, 'parts', cardinality(m.part_hashes),
			'sent_parts', cardinality(m.message_ids))) || p_detail)
$$;
