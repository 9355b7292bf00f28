-- release_works(work_ids, tokens, options) -> hold_answer per item (see ord)
-- Undoes a claim, as if it had never been made: a first claim leaves no row; a claim after a lapse leaves it failed, due,
-- unknown; any other leaves the row as it was. Refused once a reference is recorded: then there is an effect.
create or replace function :"schema".release_works(p_work_ids text[], p_tokens uuid[], p_options jsonb)
returns setof :"schema".hold_answer
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set enable_seqscan = off
as $$
declare
	w work_log;
	p work_log;
	v_before work_log;
	v_now timestamptz;
	v_standing text;
	v_outcome text;
	v_more jsonb;
	r record;
begin
	for r in
		select i.*
		from unnest(p_work_ids, p_tokens) with ordinality as i(work_id, token, ord)
		order by i.work_id collate "C", i.ord
	loop
		select * into w from work_log where work_id = r.work_id for update;
		v_now := clock_timestamp();
		v_before := w;
		v_standing := hold_standing(w, r.token);
		v_outcome := 'released';
		v_more := '{}';

		if v_standing in ('absent', 'other') then
			if exists (
				select 1 from decision_log d
				where d.work_id = r.work_id and d.event = 'release' and d.outcome = 'released' and d.token = r.token
			) then
				return query select * from hold_reply(r.ord::integer - 1, r.work_id, w, 'released', '{"repeated": true}');
				continue;
			end if;
			v_outcome := 'not_owner';
		elsif v_standing <> 'owner' then
			v_outcome := 'refused';
			v_more := jsonb_build_object('reason', 'the work is ' || w.state || ': only running work can be released');
		elsif w.external_ref is not null then
			v_outcome := 'refused';
			v_more := jsonb_build_object('reason', 'a reference is recorded (' || w.external_ref || '): the effect landed; complete the work');
		elsif w.prior is null then
			delete from work_log where work_id = r.work_id;
		else
			p := jsonb_populate_record(null::work_log, w.prior);
			if p.state = 'running' then
				p.state := 'failed';
				p.next_attempt_at := v_now;
				p.locked_until := null;
				p.outcome_known := false;
				p.settled_by := 'lapse';
				p.last_error := w.last_error;
			end if;
			update work_log set
				state = p.state, generation = p.generation, attempt = p.attempt, token = p.token,
				locked_until = p.locked_until, next_attempt_at = p.next_attempt_at,
				window_mode = p.window_mode, lease_s = p.lease_s, on_lapse = p.on_lapse, max_attempts = p.max_attempts,
				backoff_base_s = p.backoff_base_s, backoff_cap_s = p.backoff_cap_s, match = p.match,
				result = w.prior_result, result_hash = p.result_hash, external_ref = p.external_ref,
				decision_key = p.decision_key, last_error = p.last_error, outcome_known = p.outcome_known,
				settled_by = p.settled_by, stub = p.stub,
				payload = case when p.state = 'done' then null else coalesce((w.prior ->> 'payload_text')::json, payload) end,
				instance = p.instance, workflow = p.workflow, workflow_name = p.workflow_name, execution = p.execution,
				parent_execution = p.parent_execution, node = p.node, mode = p.mode, run_id = p.run_id,
				first_started_at = p.first_started_at, claimed_at = p.claimed_at, completed_at = p.completed_at,
				prior = null, prior_result = null, updated_at = v_now
			where work_id = r.work_id
			returning * into w;
		end if;

		insert into decision_log (work_id, event, outcome, generation, attempt, token, fired, checked, detail)
		values (r.work_id, 'release', v_outcome, v_before.generation, v_before.attempt, r.token, p_options -> 'caller',
			claim_findings(v_before),
			nullif(v_more || case when v_outcome = 'released' then
				jsonb_build_object('now', case when v_before.prior is null then 'no work' else w.state end) else '{}'::jsonb end
				|| case when p_options -> 'force' = 'true' then '{"force": true}' else '{}'::jsonb end, '{}'));
		if v_outcome = 'released' and v_before.prior is null then
			w := null;
			v_more := jsonb_strip_nulls(jsonb_build_object('kind', v_before.kind, 'key', v_before.key));
		end if;
		return query select * from hold_reply(r.ord::integer - 1, r.work_id, w, v_outcome, v_more);
	end loop;
end
$$;
