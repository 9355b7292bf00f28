-- record_reference(work_id, token, external_ref, options) -> hold_answer (one row)
-- One work; see record_references.
create or replace function :"schema".record_reference(p_work_id text, p_token uuid, p_external_ref text, p_options jsonb)
returns setof :"schema".hold_answer
language sql security definer
set search_path = :"schema", pg_temp
as $$
	select * from record_references(array[p_work_id], array[p_token], array[p_external_ref], p_options)
$$;
