-- checkpoint_id(name, run_id) -> what the decision log knows a checkpoint by
-- No work can have this id: a kind holds no ":".
create or replace function :"schema".checkpoint_id(p_name text, p_run_id text)
returns text
language sql stable
as $$
	select encode(sha256(convert_to('checkpoint::' || to_jsonb(array[p_name, p_run_id])::text, 'UTF8')), 'hex')
$$;
