-- failure_state(work, landed, permanent) -> the state an attempt that did not complete is settled in
-- One rule for an owner's report, a lapse, a sweep and a failed execution. landed: 'no' or 'unknown'.
create or replace function :"schema".failure_state(w :"schema".work_log, p_landed text, p_permanent boolean)
returns text
language sql stable
as $$
	select case
		-- the write-back is the lock: a recorded reference says that the effect landed
		when p_landed = 'unknown' and w.external_ref is not null then 'done'
		-- a claim in shadow mode guarded nothing: its failures hold and kill nothing of a running business
		when w.on_lapse = 'shadow' then 'failed'
		-- nobody knows, and it must not be guessed: hold beats "no attempts left" and "permanent"
		when p_landed = 'unknown' and w.on_lapse = 'hold' then 'held'
		when p_permanent or w.attempt >= w.max_attempts then 'dead'
		else 'failed'
	end
$$;
