-- extend_lease(work_id, token, lease_s, options) -> hold_answer (one row)
-- One work; see extend_leases.
create or replace function :"schema".extend_lease(p_work_id text, p_token uuid, p_lease_s double precision, p_options jsonb)
returns setof :"schema".hold_answer
language sql security definer
set search_path = :"schema", pg_temp
as $$
	select * from extend_leases(array[p_work_id], array[p_token], array[p_lease_s], p_options)
$$;
