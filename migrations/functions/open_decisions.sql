-- open_decisions(instance, execution, limit) -> the questions that this execution decides, oldest first
-- How a Store finds "the only open look-up of this execution" when pairing is lost.
create or replace function :"schema".open_decisions(p_instance text, p_execution text, p_limit integer)
returns table (decision_key text, token uuid, kind text, locked_until timestamptz)
language sql stable security definer
set search_path = :"schema", pg_temp
as $$
	select d.decision_key, d.token, d.kind, d.locked_until
	from llm_decisions d
	where d.state = 'deciding' and d.instance is not distinct from p_instance and d.execution = p_execution
	order by d.claimed_at, d.decision_key
	limit greatest(1, least(p_limit, 1000))
$$;
