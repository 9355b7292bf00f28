-- sweep_works(limit, options) -> the works whose lease had lapsed, as they were settled
-- Notices work whose owner vanished and that nobody claims again. Settles it exactly as a claim that met it would, by the
-- policy stored at claim. Passes over rows that somebody else is at. options: {"caller": {…}}.
create or replace function :"schema".sweep_works(p_limit integer, p_options jsonb)
returns table (
	work_id text, kind text, key text, state text, attempt integer, next_attempt_at timestamptz, execution text
)
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
as $$
#variable_conflict use_column
declare
	w work_log;
begin
	for w in
		select s.* from work_log s
		where s.state = 'running' and s.locked_until <= clock_timestamp()
		order by s.locked_until
		limit greatest(0, least(p_limit, 5000))
		for update skip locked
	loop
		-- the row is locked, but the lease may have been extended between the look and the lock
		if w.state <> 'running' or w.locked_until > clock_timestamp() then
			continue;
		end if;
		w := settle_unreported(w, 'sweep', 'lapse', lapse_note(w), null, p_options -> 'caller', null);
		return query select w.work_id, w.kind, w.key, w.state, w.attempt, w.next_attempt_at, w.execution;
	end loop;
end
$$;
