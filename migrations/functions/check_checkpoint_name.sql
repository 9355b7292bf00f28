-- check_checkpoint_name(name, run_id): raises 22023 for what cannot name a checkpoint
create or replace function :"schema".check_checkpoint_name(p_name text, p_run_id text)
returns void
language plpgsql stable
as $$
begin
	if p_name is null or not (char_length(p_name) between 1 and 200) then
		raise exception 'the name of a checkpoint has 1 to 200 characters, not %', coalesce(char_length(p_name)::text, 'null')
			using errcode = '22023';
	end if;
	if p_run_id is null or char_length(p_run_id) > 200 then
		raise exception 'run_id has at most 200 characters, not %', coalesce(char_length(p_run_id)::text, 'null')
			using errcode = '22023', hint = 'An empty run_id is one cursor for all runs.';
	end if;
end
$$;
