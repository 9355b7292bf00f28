-- fail_execution(instance, executions, error, options) -> one row per running work that was settled
-- What an error workflow says: these executions are over. Their work is settled as a lapse is ("may have landed", due at
-- once). Work of their sub-workflows too, one level down, but that is not due before its lease ends: the child may live.
create or replace function :"schema".fail_execution(
	p_instance text, p_executions text[], p_error text, p_options jsonb
)
returns table (
	work_id text, kind text, key text, state text, attempt integer, next_attempt_at timestamptz, child boolean
)
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
as $$
#variable_conflict use_column
declare
	w work_log;
	v_child boolean;
	v_ids text[];
	v_id text;
begin
	select array_agg(f.work_id order by f.work_id collate "C") into v_ids
	from work_log f
	where f.state = 'running' and f.instance is not distinct from p_instance
		and (f.execution = any(p_executions) or f.parent_execution = any(p_executions));

	foreach v_id in array coalesce(v_ids, '{}') loop
		select * into w from work_log f where f.work_id = v_id for update;
		-- it may have been completed or claimed anew while this waited for the lock
		if not found or w.state <> 'running' or w.instance is distinct from p_instance
			or not (coalesce(w.execution = any(p_executions), false) or coalesce(w.parent_execution = any(p_executions), false)) then
			continue;
		end if;
		v_child := not coalesce(w.execution = any(p_executions), false);
		w := settle_unreported(w, 'fail_execution', 'execution', left(coalesce(p_error, 'the execution failed'), 4000),
			case when v_child then w.locked_until end, p_options -> 'caller',
			jsonb_strip_nulls(jsonb_build_object('error', left(p_error, 4000), 'executions', to_jsonb(p_executions),
				'child', case when v_child then true end)));
		return query select w.work_id, w.kind, w.key, w.state, w.attempt, w.next_attempt_at, v_child;
	end loop;
end
$$;
