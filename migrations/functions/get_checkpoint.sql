-- get_checkpoint(name, run_id) -> json, or null where there is none
create or replace function :"schema".get_checkpoint(p_name text, p_run_id text)
returns json
language plpgsql stable security definer
set search_path = :"schema", pg_temp
set enable_seqscan = off
as $$
declare
	c checkpoints;
begin
	perform check_checkpoint_name(p_name, coalesce(p_run_id, ''));
	select * into c from checkpoints where name = p_name and run_id = coalesce(p_run_id, '');
	return case when found then checkpoint_report(c) end;
end
$$;
