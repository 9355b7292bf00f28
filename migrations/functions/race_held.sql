-- race_held(work_id, wait_s) -> whether the gate of hold_race stands; waits for it up to wait_s
create or replace function :"schema".race_held(p_work_id text, p_wait_s double precision)
returns boolean
language plpgsql security definer
set search_path = :"schema", pg_temp
as $$
declare
	v_key bigint := hashtextextended('n8n-nodes-idempotency:race:' || p_work_id, 0);
	v_until timestamptz;
begin
	if not (p_wait_s >= 0 and p_wait_s <= 10) then
		raise exception 'wait_s must be from 0 to 10, not %', coalesce(p_wait_s::text, 'null') using errcode = '22023';
	end if;
	v_until := clock_timestamp() + make_interval(secs => p_wait_s);
	loop
		-- a key of 64 bits stands in pg_locks as its two halves
		if exists (
			select 1 from pg_locks l
			where l.locktype = 'advisory' and l.granted and l.objsubid = 1
				and l.database = (select d.oid from pg_database d where d.datname = current_database())
				and (l.classid::bigint << 32) | l.objid::bigint = v_key
		) then
			return true;
		end if;
		if clock_timestamp() >= v_until then
			return false;
		end if;
		perform pg_sleep(0.005);
	end loop;
end
$$;
