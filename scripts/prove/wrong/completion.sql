-- Wrong on purpose (fact S12), for the prove's own database only: a completion that asks whether the work runs, not who
-- runs it, and so lets an owner complete that was replaced long ago.
drop function idempotency.complete_work;
alter function idempotency.complete_works rename to right_complete_works;

create function idempotency.complete_work(
	p_work_id text, p_token uuid, p_result json, p_external_ref text, p_options jsonb
)
returns setof idempotency.hold_answer
language plpgsql
set search_path = idempotency, pg_temp
as $$
declare
	w work_log;
begin
	update work_log set
		state = 'done', result = p_result, external_ref = coalesce(p_external_ref, external_ref), completed_at = now(), last_done_at = now()
	where work_id = p_work_id and state = 'running'
	returning * into w;
	if not found then
		return query select * from right_complete_works(
			array[p_work_id], array[p_token], array[p_result], array[p_external_ref], p_options);
		return;
	end if;
	insert into decision_log (work_id, event, outcome, generation, attempt, token, fired)
	values (p_work_id, 'complete', 'completed', w.generation, w.attempt, p_token, p_options -> 'caller');
	return query select * from hold_reply(0, p_work_id, w, 'completed', '{}');
end
$$;

create function idempotency.complete_works(
	p_work_ids text[], p_tokens uuid[], p_results json[], p_external_refs text[], p_options jsonb
)
returns setof idempotency.hold_answer
language sql
set search_path = idempotency, pg_temp
as $$
	select i.ord::integer - 1, a.work_id, a.status, a.state, a.generation, a.attempt, a.locked_until, a.next_attempt_at,
		a.result, a.external_ref, a.completed_at, a.last_error, a.more
	from (
		select * from unnest(p_work_ids, p_tokens, p_results, p_external_refs) with ordinality
			as u(work_id, token, result, external_ref, ord)
		order by u.work_id collate "C", u.ord
	) i
	cross join lateral complete_work(i.work_id, i.token, i.result, i.external_ref, p_options) a
$$;
