-- replay_works(work_ids, options) -> hold_answer per work (see ord): replayed, refused or not_owner (unknown)
-- By a person. Failed, dead or held work becomes due now, its attempts reset, its old owner fenced. Running work only with
-- {"force": true}; done work only with {"again": true}: on purpose, as a new generation. Work without a stored payload
-- cannot be handed out: it waits for its next delivery ("waitsForDelivery").
create or replace function :"schema".replay_works(p_work_ids text[], p_options jsonb)
returns setof :"schema".hold_answer
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set enable_seqscan = off
as $$
declare
	w work_log;
	v_force boolean := coalesce((p_options ->> 'force')::boolean, false);
	v_again boolean := coalesce((p_options ->> 'again')::boolean, false);
	v_refusal text;
	r record;
begin
	for r in
		select i.* from unnest(p_work_ids) with ordinality as i(work_id, ord)
		order by i.work_id collate "C", i.ord
	loop
		select * into w from work_log where work_id = r.work_id for update;
		if not found then
			return query select * from hold_reply(r.ord::integer - 1, r.work_id, w, 'not_owner', '{}');
			continue;
		end if;
		v_refusal := replay_refusal(w, v_force, v_again);
		if v_refusal is not null then
			return query select * from hold_reply(r.ord::integer - 1, r.work_id, w, 'refused', jsonb_build_object('reason', v_refusal));
			continue;
		end if;
		w := make_due(w, 'replay', w.state = 'done', p_options -> 'caller', '{}');
		return query select * from hold_reply(r.ord::integer - 1, r.work_id, w, 'replayed',
			case when w.payload is null then '{"waitsForDelivery": true}'::jsonb else '{}'::jsonb end);
	end loop;
end
$$;
