-- release_work(work_id, token, options) -> hold_answer (one row)
-- One work; see release_works.
create or replace function :"schema".release_work(p_work_id text, p_token uuid, p_options jsonb)
returns setof :"schema".hold_answer
language sql security definer
set search_path = :"schema", pg_temp
as $$
	select * from release_works(array[p_work_id], array[p_token], p_options)
$$;
