-- fail_work(work_id, token, error, landed, permanent, options) -> hold_answer (one row)
-- One work; see fail_works.
create or replace function :"schema".fail_work(p_work_id text, p_token uuid, p_error text, p_landed text, p_permanent boolean, p_options jsonb)
returns setof :"schema".hold_answer
language sql security definer
set search_path = :"schema", pg_temp
as $$
	select * from fail_works(array[p_work_id], array[p_token], array[p_error], array[p_landed], array[p_permanent], p_options)
$$;
