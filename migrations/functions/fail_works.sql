-- fail_works(work_ids, tokens, errors, landed, permanent, options) -> hold_answer per item (see ord)
-- landed: 'no' (the effect certainly did not land) or 'unknown' (it may have); permanent: do not try again.
-- The owner's word replaces what a lapse, a sweep or a failed execution guessed, as long as its token is still the row's.
create or replace function :"schema".fail_works(
	p_work_ids text[], p_tokens uuid[], p_errors text[], p_landed text[], p_permanent boolean[], p_options jsonb
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
	v_state text;
	v_more jsonb;
	v_withdrawn text;
	r record;
begin
	for r in
		select i.*
		from unnest(p_work_ids, p_tokens, p_errors, p_landed, p_permanent) with ordinality
			as i(work_id, token, error, landed, permanent, ord)
		order by i.work_id collate "C", i.ord
	loop
		if r.landed is null or r.landed not in ('no', 'unknown') then
			raise exception 'landed must be no or unknown, not %', coalesce(quote_literal(r.landed), 'null')
				using errcode = '22023';
		end if;
		r.error := left(coalesce(r.error, ''), 4000);
		select * into w from work_log where work_id = r.work_id for update;
		v_now := clock_timestamp();
		v_before := w;
		v_standing := hold_standing(w, r.token);

		if v_standing in ('absent', 'other') then
			insert into decision_log (work_id, event, outcome, generation, attempt, token, fired, checked, detail)
			values (r.work_id, 'fail', 'not_owner', w.generation, w.attempt, r.token, p_options -> 'caller',
				claim_findings(w), jsonb_build_object('error', r.error, 'landed', r.landed));
			return query select * from hold_reply(r.ord::integer - 1, r.work_id, w, 'not_owner', '{}');
			continue;
		end if;

		if v_standing = 'done' and w.settled_by = 'reference' and r.landed = 'unknown' then
			-- a resend of the failure that this reference settled gets the same answer
			return query select * from hold_reply(r.ord::integer - 1, r.work_id, w, 'completed',
				'{"repeated": true, "reason": "settled as done by the reference recorded before"}');
			continue;
		end if;

		if v_standing = 'done' then
			insert into decision_log (work_id, event, outcome, generation, attempt, token, fired, checked, detail)
			values (r.work_id, 'fail', 'refused', w.generation, w.attempt, r.token, p_options -> 'caller',
				claim_findings(w), jsonb_build_object('error', r.error, 'landed', r.landed));
			return query select * from hold_reply(r.ord::integer - 1, r.work_id, w, 'refused',
				jsonb_build_object('reason', 'the work is done already' || coalesce(', with reference ' || w.external_ref, '')));
			continue;
		end if;

		-- "do not try again" is not taken back by a second error path of the same run
		v_state := failure_state(w, r.landed,
			coalesce(r.permanent, false) or (w.state = 'dead' and w.settled_by = 'owner'));
		if v_standing = 'settled' and w.settled_by = 'owner' and w.state = v_state and w.last_error = r.error
			and w.outcome_known = (r.landed = 'no') then
			return query select * from hold_reply(r.ord::integer - 1, r.work_id, w, 'failed', '{"repeated": true}');
			continue;
		end if;

		v_withdrawn := case when r.landed = 'no' then w.external_ref end;
		v_more := case when v_standing = 'settled' or w.locked_until <= v_now then '{"late": true}'::jsonb else '{}'::jsonb end;
		update work_log set
			state = v_state,
			locked_until = null,
			next_attempt_at = case when v_state = 'failed' then v_now + make_interval(secs => backoff_s(w)) end,
			external_ref = case when r.landed = 'no' then null else external_ref end,
			last_error = case when v_state = 'done' then last_error else r.error end,
			outcome_known = (r.landed = 'no' or v_state = 'done'),
			settled_by = case when v_state = 'done' then 'reference' else 'owner' end,
			payload = case when v_state = 'done' then null else payload end,
			completed_at = case when v_state = 'done' then v_now end,
			last_done_at = case when v_state = 'done' then v_now else last_done_at end,
			prior = null, prior_result = null,
			updated_at = v_now
		where work_id = r.work_id
		returning * into w;

		insert into decision_log (work_id, event, outcome, generation, attempt, token, fired, checked, detail, external_ref)
		values (r.work_id, 'fail', v_state, w.generation, w.attempt, r.token, p_options -> 'caller',
			claim_findings(v_before),
			v_more || jsonb_strip_nulls(jsonb_build_object('error', r.error, 'landed', r.landed,
				'permanent', case when r.permanent then true end,
				'referenceWithdrawn', case when v_withdrawn is not null then true end,
				'nextAttemptAt', utc(w.next_attempt_at))),
			coalesce(v_withdrawn, case when v_state = 'done' then w.external_ref end));
		return query select * from hold_reply(r.ord::integer - 1, r.work_id, w,
			case when v_state = 'done' then 'completed' else 'failed' end,
			v_more || case when v_state = 'done'
				then jsonb_build_object('reason', 'settled as done by the reference recorded before') else '{}'::jsonb end);
	end loop;
end
$$;
