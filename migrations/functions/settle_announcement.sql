-- settle_announcement(announcement, error, caller) -> the announcement, settled
-- For a row that the caller has locked and found handed out. error null: it was handled. Otherwise it is handed out again
-- after a growing delay (1, 5, 25 and 125 minutes), and given up after the fifth time.
create or replace function :"schema".settle_announcement(
	p_announcement :"schema".announcements, p_error text, p_caller jsonb
)
returns :"schema".announcements
language plpgsql
as $$
declare
	a announcements;
	v_now timestamptz := clock_timestamp();
begin
	update announcements n set
		state = case when p_error is null then 'acknowledged' when n.attempt >= 5 then 'given_up' else 'waiting' end,
		locked_until = null,
		next_attempt_at = case when p_error is not null and n.attempt < 5
			then v_now + make_interval(secs => 60 * power(5, n.attempt - 1)) end,
		last_error = p_error,
		updated_at = v_now
	where n.subscription = p_announcement.subscription and n.subject = p_announcement.subject
		and n.subject_id = p_announcement.subject_id
	returning * into a;
	insert into decision_log (work_id, event, outcome, fired, detail)
	values (a.subject_id, 'announce', a.state, p_caller, jsonb_strip_nulls(jsonb_build_object(
		'subscription', a.subscription, 'handOut', a.attempt, 'error', p_error, 'nextAttemptAt', utc(a.next_attempt_at))));
	return a;
end
$$;
