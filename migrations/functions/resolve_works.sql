-- resolve_works(work_ids, landed, external_ref, result, options) -> hold_answer per work (see ord): resolved, refused, not_owner
-- A person says what became of held or dead work, or of failed work whose outcome is unknown. landed true: done, with
-- reference and result, its token kept (its owner may still report). landed false: due now, attempts reset, owner fenced.
create or replace function :"schema".resolve_works(
	p_work_ids text[], p_landed boolean, p_external_ref text, p_result json, p_options jsonb
)
returns setof :"schema".hold_answer
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set enable_seqscan = off
as $$
declare
	w work_log;
	v_before work_log;
	v_now timestamptz;
	v_refusal text;
	r record;
begin
	if p_landed is null then
		raise exception 'landed must be true or false, not null' using errcode = '22023';
	end if;
	for r in
		select i.* from unnest(p_work_ids) with ordinality as i(work_id, ord)
		order by i.work_id collate "C", i.ord
	loop
		select * into w from work_log where work_id = r.work_id for update;
		if not found then
			return query select * from hold_reply(r.ord::integer - 1, r.work_id, w, 'not_owner', '{}');
			continue;
		end if;
		v_refusal := resolve_refusal(w);
		if v_refusal is not null then
			return query select * from hold_reply(r.ord::integer - 1, r.work_id, w, 'refused', jsonb_build_object('reason', v_refusal));
			continue;
		end if;
		if not p_landed then
			w := make_due(w, 'resolve', false, p_options -> 'caller', '{"landed": false}');
			update work_log set outcome_known = true where work_id = r.work_id returning * into w;
			return query select * from hold_reply(r.ord::integer - 1, r.work_id, w, 'resolved',
				case when w.payload is null then '{"waitsForDelivery": true}'::jsonb else '{}'::jsonb end);
			continue;
		end if;
		v_before := w;
		v_now := clock_timestamp();
		update work_log set
			state = 'done', result = p_result, result_hash = null, stub = false, external_ref = coalesce(nullif(p_external_ref, ''), external_ref),
			next_attempt_at = null, payload = null, completed_at = v_now, last_done_at = v_now,
			outcome_known = true, settled_by = 'person', prior = null, prior_result = null, updated_at = v_now
		where work_id = r.work_id
		returning * into w;
		insert into decision_log (work_id, event, outcome, generation, attempt, token, fired, checked, detail, external_ref)
		values (r.work_id, 'resolve', 'done', w.generation, w.attempt, w.token, p_options -> 'caller',
			claim_findings(v_before), '{"landed": true}', w.external_ref);
		return query select * from hold_reply(r.ord::integer - 1, r.work_id, w, 'resolved', '{}');
	end loop;
end
$$;
