-- redeem_action_link(nonce_hash, token, external_ref, options) -> json: status redeemed, used, expired, overtaken, refused or unknown
-- Does what the link is for, and marks it as used, in one transaction; of two at once one does it, and the other is told
-- when and by whom it was used. What is refused uses nothing up and changes nothing. token: a fresh UUID per call; sent
-- again, the call is answered with its first answer. external_ref: for landed, instead of the link's own.
create or replace function :"schema".redeem_action_link(
	p_nonce_hash text, p_token uuid, p_external_ref text, p_options jsonb
)
returns json
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set enable_seqscan = off
as $$
declare
	l action_links;
	w work_log;
	s record;
	a hold_answer;
	v_reference text;
	v_fired jsonb := coalesce(p_options -> 'caller', '{}') || jsonb_strip_nulls(jsonb_build_object('by', p_options ->> 'by'));
begin
	if p_token is null then
		raise exception 'token must not be null' using errcode = '22023', hint = 'Make a fresh UUID for every call.';
	end if;
	if length(p_external_ref) > 2000 then
		raise exception 'external_ref is longer than 2000 characters' using errcode = '22023';
	end if;
	-- always the link first, then its work: nobody locks them the other way round
	select * into l from action_links where nonce_hash = p_nonce_hash for update;
	if not found then
		s := link_standing(l, w);
		return link_reply(l, w, s.status, s.reason, '{}');
	end if;
	select * into w from work_log where work_id = l.work_id for update;
	if l.used_token = p_token then
		return link_reply(l, w, 'redeemed', null, '{"repeated": true}');
	end if;
	s := link_standing(l, w);
	if s.status = 'usable' then
		v_reference := coalesce(nullif(p_external_ref, ''), l.external_ref);
		if l.action = 'replay' then
			select * into a from replay_works(array[l.work_id], jsonb_build_object('caller', v_fired));
		else
			select * into a from resolve_works(array[l.work_id], l.action = 'landed', v_reference, null,
				jsonb_build_object('caller', v_fired));
		end if;
		if a.status not in ('replayed', 'resolved') then
			-- link_standing asked the same of the same locked row
			raise exception 'the link was usable, and its action was answered with %', a.status;
		end if;
		select * into w from work_log where work_id = l.work_id;
		update action_links set
			used_at = clock_timestamp(), used_by = v_fired, used_token = p_token,
			outcome = jsonb_strip_nulls(jsonb_build_object('status', a.status, 'state', w.state, 'externalRef', w.external_ref,
				'waitsForDelivery', a.more -> 'waitsForDelivery'))
		where nonce_hash = p_nonce_hash
		returning * into l;
		s.status := 'redeemed';
	end if;
	insert into decision_log (work_id, event, outcome, generation, attempt, fired, detail)
	values (l.work_id, 'redeem_link', s.status, w.generation, w.attempt, v_fired,
		jsonb_strip_nulls(jsonb_build_object('action', l.action, 'reason', s.reason)));
	return link_reply(l, w, s.status, s.reason, '{}');
end
$$;
