-- complete_works(work_ids, tokens, results, external_refs, options) -> hold_answer per item (see ord)
-- results and external_refs may be null or hold nulls. A work named twice: the first decides, later ones are answered as
-- by statements of their own. Repeating a completion with the same token and content changes nothing.
create or replace function :"schema".complete_works(
	p_work_ids text[], p_tokens uuid[], p_results json[], p_external_refs text[], p_options jsonb
)
returns setof :"schema".hold_answer
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set plan_cache_mode = force_custom_plan
set jit = off
-- statistics of a young table lag behind: never scan it
set enable_seqscan = off
as $$
declare
	v_now timestamptz;
	v_caller jsonb := p_options -> 'caller';
	v_answers hold_answer[];
	v_settled text[];
	r record;
begin
	if cardinality(p_work_ids) = 0 then
		return;
	end if;
	if cardinality(p_tokens) is distinct from cardinality(p_work_ids) then
		raise exception 'tokens must hold one token (or null) for each work_id' using errcode = '22023';
	end if;

	-- in work_id order, as claims do: completions in another order deadlock with them
	perform 1
	from (
		select w.work_id
		from work_log w
		where w.work_id = any(p_work_ids)
		order by w.work_id collate "C"
		for update
	) locked;
	v_now := clock_timestamp();

	-- The common case first: running work, its own token, no reference recorded before.
	with input as materialized (
		select distinct on (i.work_id collate "C") i.work_id, i.token, i.result, nullif(i.external_ref, '') as external_ref, i.ord
		from unnest(p_work_ids, p_tokens, p_results, p_external_refs) with ordinality
			as i(work_id, token, result, external_ref, ord)
		order by i.work_id collate "C", i.ord
	), changed as (
		update work_log as w set
			state = 'done', result = i.result, external_ref = i.external_ref, completed_at = v_now, last_done_at = v_now,
			updated_at = v_now, payload = null, prior = null, prior_result = null, settled_by = 'owner',
			outcome_known = true, last_error = null
		from input i
		-- not "state = 'running'": on a young table the planner then walks the index of running work for every item
		where w.work_id = i.work_id and hold_standing(w, i.token) = 'owner' and w.external_ref is null
		returning i.ord, w.work_id, w.kind, w.key, w.generation, w.attempt, w.token, w.external_ref, w.locked_until <= v_now as late
	), logged as (
		insert into decision_log (work_id, event, outcome, generation, attempt, token, fired, detail, external_ref)
		select c.work_id, 'complete', 'completed', c.generation, c.attempt, c.token, v_caller,
			case when c.late then '{"late": true}'::jsonb end, c.external_ref
		from changed c
	)
	select
		coalesce(array_agg(row(c.ord::integer - 1, c.work_id, 'completed', 'done', c.generation, c.attempt, null, null, null,
			c.external_ref, v_now, null,
			case when c.late then jsonb_build_object('kind', c.kind, 'key', c.key, 'late', true)
				else jsonb_build_object('kind', c.kind, 'key', c.key) end)::hold_answer order by c.ord), '{}'),
		coalesce(array_agg(c.work_id), '{}')
	into v_answers, v_settled
	from changed c;

	return query select * from unnest(v_answers);
	if cardinality(v_answers) = cardinality(p_work_ids) then
		return;
	end if;

	return query
	with input as materialized (
		select distinct on (i.work_id collate "C") i.work_id, i.token, i.result, nullif(i.external_ref, '') as external_ref, i.ord
		from unnest(p_work_ids, p_tokens, p_results, p_external_refs) with ordinality
			as i(work_id, token, result, external_ref, ord)
		order by i.work_id collate "C", i.ord
	), found as materialized (
		select i.work_id, i.token, i.result, i.external_ref, i.ord, w as work,
			hold_standing(w, i.token) as standing,
			-- done by a reference, or by a person without a result: the owner's result fills the gap
			hold_standing(w, i.token) in ('owner', 'settled')
				or (hold_standing(w, i.token) = 'done' and w.result is null and not w.stub
					and w.settled_by is distinct from 'owner' and i.result is not null) as accepted
		from input i
		left join work_log w on w.work_id = i.work_id
		where i.work_id <> all(v_settled)
	), judged as materialized (
		select f.*,
			-- the reference recorded first stands; a different one may mean two effects, so it is reported, and so is one
			-- that comes after a completion without any
			f.external_ref is not null and case when f.accepted then (f.work).external_ref <> f.external_ref
				else (f.work).external_ref is distinct from f.external_ref end as ref_differs,
			f.standing = 'done' and not f.accepted and not result_equals(f.work, f.result) as result_differs,
			f.accepted and (f.standing <> 'owner' or (f.work).locked_until <= v_now) as late
		from found f
	), changed as (
		update work_log as w set
			state = 'done',
			result = j.result,
			-- a dead stub whose owner reports after all holds a result again
			result_hash = null, stub = false,
			external_ref = coalesce(w.external_ref, j.external_ref),
			completed_at = coalesce(case when j.standing = 'done' then w.completed_at end, v_now),
			last_done_at = coalesce(case when j.standing = 'done' then w.last_done_at end, v_now),
			updated_at = v_now, next_attempt_at = null, payload = null,
			prior = null, prior_result = null, settled_by = 'owner', outcome_known = true, last_error = null
		from judged j
		where w.work_id = j.work_id and j.accepted
		returning w.work_id, w as work
	), answered as materialized (
		select j.*, coalesce(c.work, j.work) as after,
			case when j.standing in ('other', 'absent') then 'not_owner' else 'completed' end as status,
			jsonb_strip_nulls(jsonb_build_object(
				'late', case when j.late then true end,
				'repeated', case when j.standing = 'done' and not j.accepted then true end,
				'differs', case when j.standing not in ('other', 'absent') and (j.ref_differs or j.result_differs) then
					to_jsonb(array_remove(array[
						case when j.result_differs then 'result' end,
						case when j.ref_differs then 'external_ref' end], null)) end
			)) as more
		from judged j
		left join changed c on c.work_id = j.work_id
	), logged as (
		insert into decision_log (work_id, event, outcome, generation, attempt, token, fired, checked, detail, result, external_ref)
		select a.work_id, 'complete',
			case when a.status = 'completed' and not a.accepted then 'refused' else a.status end,
			(a.work).generation, (a.work).attempt, a.token, v_caller,
			case when a.standing <> 'owner' then jsonb_strip_nulls(jsonb_build_object('found', (a.work).state)) end,
			nullif(a.more, '{}'),
			-- what was refused stays here in full: it may mean two effects
			case when not a.accepted then a.result end,
			a.external_ref
		from answered a
		where a.accepted or a.status = 'not_owner' or a.more ? 'differs'
	)
	select h.*
	from answered a
	cross join lateral hold_reply(a.ord::integer - 1, a.work_id, a.after, a.status, a.more) h
	order by a.ord;

	for r in
		select i.* from (
			select u.*, row_number() over (partition by u.work_id order by u.ord) as nth
			from unnest(p_work_ids, p_tokens, p_results, p_external_refs) with ordinality
				as u(work_id, token, result, external_ref, ord)
		) i
		where i.nth > 1
		order by i.ord
	loop
		return query
		select r.ord::integer - 1, a.work_id, a.status, a.state, a.generation, a.attempt, a.locked_until,
			a.next_attempt_at, a.result, a.external_ref, a.completed_at, a.last_error, a.more
		from complete_work(r.work_id, r.token, r.result, r.external_ref, p_options) a;
	end loop;
end
$$;
