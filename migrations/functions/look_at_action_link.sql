-- look_at_action_link(nonce_hash) -> json: what the link would do now, without using it
-- status usable, used, expired, overtaken, refused or unknown. Changes, locks and logs nothing: a link-preview bot may call it.
create or replace function :"schema".look_at_action_link(p_nonce_hash text)
returns json
language plpgsql stable security definer
set search_path = :"schema", pg_temp
set enable_seqscan = off
as $$
declare
	l action_links;
	w work_log;
	s record;
begin
	select * into l from action_links where nonce_hash = p_nonce_hash;
	select * into w from work_log where work_id = l.work_id;
	s := link_standing(l, w);
	return link_reply(l, w, s.status, s.reason, '{}');
end
$$;
