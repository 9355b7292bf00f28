-- open_claims(instance, execution, limit) -> the running works that this execution holds, oldest first
-- How Complete Work finds "the only open claim of this execution" when pairing is lost.
create or replace function :"schema".open_claims(p_instance text, p_execution text, p_limit integer)
returns table (work_id text, token uuid, kind text, key text, locked_until timestamptz)
language sql stable security definer
set search_path = :"schema", pg_temp
as $$
	select w.work_id, w.token, w.kind, w.key, w.locked_until
	from work_log w
	where w.state = 'running' and w.instance is not distinct from p_instance and w.execution = p_execution
	order by w.claimed_at, w.work_id
	limit greatest(1, least(p_limit, 1000))
$$;
