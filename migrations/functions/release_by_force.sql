-- release_by_force(work_ids, options) -> hold_answer per work (see ord): released, refused or not_owner (unknown)
-- Undoes the claim of running work without its token, and so fences its owner. By a person who knows that nothing was done.
create or replace function :"schema".release_by_force(p_work_ids text[], p_options jsonb)
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
		select i.* from unnest(p_work_ids) with ordinality as i(work_id, ord)
		order by i.work_id collate "C", i.ord
	loop
		select * into w from work_log where work_id = r.work_id for update;
		if not found then
			return query select * from hold_reply(r.ord::integer - 1, r.work_id, w, 'not_owner', '{}');
			continue;
		end if;
		-- a replay cleared the token of work that waits: without a token release_works would speak of another owner
		if w.state <> 'running' then
			return query select * from hold_reply(r.ord::integer - 1, r.work_id, w, 'refused',
				jsonb_build_object('reason', 'the work is ' || w.state || ': only running work can be released'));
			continue;
		end if;
		-- the row is locked, so its token is still the one that release_works will find
		return query
		select r.ord::integer - 1, a.work_id, a.status, a.state, a.generation, a.attempt, a.locked_until, a.next_attempt_at,
			a.result, a.external_ref, a.completed_at, a.last_error, a.more
		from release_works(array[r.work_id], array[w.token], coalesce(p_options, '{}') || '{"force": true}') a;
	end loop;
end
$$;
