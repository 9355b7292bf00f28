-- fail_if_running(work_ids, tokens, errors, options) -> hold_answer per item (see ord)
-- What one says who handed work to another and sees that it ended badly: it may have landed. Only where the token still
-- runs: what the owner itself has reported is not replaced (refused). Said again it gives the same answer.
create or replace function :"schema".fail_if_running(p_work_ids text[], p_tokens uuid[], p_errors text[], p_options jsonb)
returns setof :"schema".hold_answer
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set enable_seqscan = off
as $$
declare
	w work_log;
	r record;
begin
	for r in
		select i.* from unnest(p_work_ids, p_tokens, p_errors) with ordinality as i(work_id, token, error, ord)
		order by i.work_id collate "C", i.ord
	loop
		select * into w from work_log where work_id = r.work_id for update;
		if w.token = r.token and (w.state = 'running' or w.settled_by = 'reference'
			or (w.settled_by = 'owner' and not w.outcome_known and w.last_error = left(coalesce(r.error, ''), 4000))) then
			return query
			select r.ord::integer - 1, a.work_id, a.status, a.state, a.generation, a.attempt, a.locked_until, a.next_attempt_at,
				a.result, a.external_ref, a.completed_at, a.last_error, a.more
			from fail_works(array[r.work_id], array[r.token], array[r.error], '{unknown}', '{false}', p_options) a;
		elsif w.token = r.token then
			return query select * from hold_reply(r.ord::integer - 1, r.work_id, w, 'refused',
				jsonb_build_object('reason', 'the work is ' || w.state || ' already'));
		else
			return query select * from hold_reply(r.ord::integer - 1, r.work_id, w, 'not_owner', '{}');
		end if;
	end loop;
end
$$;
