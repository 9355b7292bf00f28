-- record_references(work_ids, tokens, external_refs, options) -> hold_answer per item (see ord)
-- The write-back is the lock: from now on a lapse, a sweep or "may have landed" settles this work as done by its
-- reference. Recorded late (the work was settled meanwhile) it settles the work as done at once: the effect is known now.
create or replace function :"schema".record_references(
	p_work_ids text[], p_tokens uuid[], p_external_refs text[], p_options jsonb
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
	v_standing text;
	v_outcome text;
	v_more jsonb;
	r record;
begin
	for r in
		select i.*
		from unnest(p_work_ids, p_tokens, p_external_refs) with ordinality as i(work_id, token, external_ref, ord)
		order by i.work_id collate "C", i.ord
	loop
		if r.external_ref is null or r.external_ref = '' then
			raise exception 'external_ref must be a text that names the effect, not empty' using errcode = '22023';
		end if;
		select * into w from work_log where work_id = r.work_id for update;
		v_now := clock_timestamp();
		v_before := w;
		v_standing := hold_standing(w, r.token);
		v_more := '{}';

		if v_standing in ('absent', 'other') then
			v_outcome := 'not_owner';
		else
			v_outcome := 'recorded';
			if w.external_ref = r.external_ref then
				return query select * from hold_reply(r.ord::integer - 1, r.work_id, w, 'recorded', '{"repeated": true}');
				continue;
			end if;
			if w.external_ref is not null then
				-- two references for one work may mean two effects: the first stands, the other is reported
				v_more := '{"differs": ["external_ref"]}';
			elsif v_standing = 'settled' then
				v_more := '{"late": true}';
				update work_log set
					state = 'done', stub = false, external_ref = r.external_ref, settled_by = 'reference', outcome_known = true,
					next_attempt_at = null, payload = null, completed_at = v_now, last_done_at = v_now, updated_at = v_now
				where work_id = r.work_id
				returning * into w;
			else
				if v_standing = 'owner' and w.locked_until <= v_now then
					v_more := '{"late": true}';
				end if;
				update work_log set external_ref = r.external_ref, updated_at = v_now
				where work_id = r.work_id
				returning * into w;
			end if;
		end if;

		insert into decision_log (work_id, event, outcome, generation, attempt, token, fired, checked, detail, external_ref)
		values (r.work_id, 'record_reference', case when v_more ? 'differs' then 'refused' else v_outcome end,
			w.generation, w.attempt, r.token, p_options -> 'caller', claim_findings(v_before), nullif(v_more, '{}'), r.external_ref);
		return query select * from hold_reply(r.ord::integer - 1, r.work_id, w, v_outcome, v_more);
	end loop;
end
$$;
