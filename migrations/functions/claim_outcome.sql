-- claim_outcome(work, token, match, window_mode, window_s, other_done_at, now) -> what a claim that meets this row means
-- The contract's table, in its order. Answers that change the row: renewed (a new generation), resent, settled (done by
-- the reference recorded before the lapse), lapse_held, lapse_dead, retaken (the next attempt).
-- other_done_at: the latest success of the kind that ends the window, for until_success.
-- Answers that change nothing: mismatch, duplicate, in_progress, not_due, held, dead.
create or replace function :"schema".claim_outcome(
	w :"schema".work_log, p_token uuid, p_match jsonb, p_window_mode text, p_window_s double precision,
	p_other_done_at timestamptz, p_now timestamptz
)
returns text
language sql stable
as $$
	select case
		when w.state = 'done' and (
			p_window_mode = 'while_running'
			or (p_window_mode = 'duration' and w.completed_at + make_interval(secs => p_window_s) <= p_now)
			-- by one clock: completed_at is read some microseconds earlier, and a kind that ends itself would end at once
			or (p_window_mode = 'until_success' and p_other_done_at > w.last_done_at)
		) then 'renewed'
		when w.state in ('failed', 'dead') and p_window_mode = 'while_running' then 'renewed'
		when w.state = 'running' and w.token = p_token then 'resent'
		when case when w.match <> p_match then match_differs(w.match, p_match) end then 'mismatch'
		when w.state = 'done' then 'duplicate'
		when w.state = 'running' and w.locked_until > p_now then 'in_progress'
		when w.state = 'running' then
			case failure_state(w, 'unknown', false)
				when 'done' then 'settled'
				when 'held' then 'lapse_held'
				when 'dead' then 'lapse_dead'
				else 'retaken'
			end
		when w.state = 'failed' and w.next_attempt_at <= p_now then 'retaken'
		when w.state = 'failed' then 'not_due'
		else w.state
	end
$$;
