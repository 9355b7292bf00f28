-- forget_test_works(work_ids, options) -> hold_answer per work (see ord): forgotten, refused or not_owner
-- Deletes work whose every attempt was a manual one in n8n's editor, so that a test can be run again. The decision log
-- stays, with a row that says so.
create or replace function :"schema".forget_test_works(p_work_ids text[], p_options jsonb)
returns setof :"schema".hold_answer
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set enable_seqscan = off
as $$
declare
	w work_log;
	v_more jsonb;
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
		v_refusal := case
			when w.state = 'running' and w.locked_until > clock_timestamp()
				then 'it is running until ' || utc(w.locked_until)
			when w.mode is distinct from 'manual' or exists (
				select 1 from decision_log d
				where d.work_id = r.work_id and d.event = 'claim' and d.outcome = 'claimed'
					and d.fired ->> 'mode' is distinct from 'manual'
			) then 'not every attempt was a manual one: its effect is real business'
			-- retention may have taken the row that says who began it
			when not exists (
				select 1 from decision_log d
				where d.work_id = r.work_id and d.event = 'claim' and d.outcome = 'claimed'
					-- the claim that began it found nothing; one after a replay is attempt 1 too, but found the work
					and not d.checked ? 'found' and d.at >= w.created_at
			) then 'its first claim is no longer in the decision log: nobody can tell that every attempt was a manual one'
		end;
		if v_refusal is not null then
			return query select * from hold_reply(r.ord::integer - 1, r.work_id, w, 'refused', jsonb_build_object('reason', v_refusal));
			continue;
		end if;
		delete from work_log where work_id = r.work_id;
		insert into decision_log (work_id, event, outcome, generation, attempt, token, fired, checked, result, external_ref)
		values (r.work_id, 'forget', 'forgotten', w.generation, w.attempt, w.token, p_options -> 'caller', claim_findings(w),
			w.result, w.external_ref);
		v_more := jsonb_strip_nulls(jsonb_build_object('kind', w.kind, 'key', w.key));
		w := null;
		return query select * from hold_reply(r.ord::integer - 1, r.work_id, w, 'forgotten', v_more);
	end loop;
end
$$;
