-- hold_race(work_id, kind, wait_s) -> whether two claims of this work were seen waiting at once
-- The starting gate of a fires-twice test. Puts the work down without committing it, so that every claim of it waits; once
-- two do, takes it back: both go on in the same instant, from two connections. Takes it back after wait_s at the latest.
create or replace function :"schema".hold_race(p_work_id text, p_kind text, p_wait_s double precision)
returns boolean
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
as $$
declare
	v_until timestamptz;
	v_gate xid;
	v_waiting integer := 0;
begin
	perform check_race(p_kind);
	if not (p_wait_s > 0 and p_wait_s <= 10) then
		raise exception 'wait_s must be above 0 and at most 10, not %', coalesce(p_wait_s::text, 'null') using errcode = '22023';
	end if;
	v_until := clock_timestamp() + make_interval(secs => p_wait_s);
	begin
		insert into work_log (work_id, kind, version, state, token, locked_until, created_at, updated_at, first_started_at, claimed_at)
		values (p_work_id, p_kind, 'gate', 'running', gen_random_uuid(), v_until, v_until, v_until, v_until, v_until);
		select w.xmin into v_gate from work_log w where w.work_id = p_work_id;
		-- seen by race_held: an uncommitted row is not
		perform pg_advisory_xact_lock(hashtextextended('n8n-nodes-idempotency:race:' || p_work_id, 0));
		loop
			-- who meets the row waits for the transaction that put it there
			select count(*) into v_waiting from pg_locks l
			where l.locktype = 'transactionid' and l.transactionid = v_gate and not l.granted;
			exit when v_waiting >= 2 or clock_timestamp() >= v_until;
			perform pg_sleep(0.005);
		end loop;
		raise exception 'go' using errcode = 'ITGO1';
	exception when sqlstate 'ITGO1' then
		-- the row was never there
		null;
	end;
	return v_waiting >= 2;
end
$$;
