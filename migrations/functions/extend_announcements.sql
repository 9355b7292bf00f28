-- extend_announcements(subscription, subject, ids, token, lease_s) -> how many of them are still held under this token
-- The heartbeat of an execution that handles announcements and has not ended.
create or replace function :"schema".extend_announcements(
	p_subscription text, p_subject text, p_ids text[], p_token uuid, p_lease_s double precision
)
returns integer
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set enable_seqscan = off
as $$
declare
	v_held integer;
begin
	if p_lease_s is null or not (p_lease_s > 0 and p_lease_s <= 86400) then
		raise exception 'lease_s must be above 0 and at most 86400 (a day), not %', coalesce(p_lease_s::text, 'null')
			using errcode = '22023';
	end if;
	with held as materialized (
		select n.subscription, n.subject, n.subject_id
		from announcements n
		where n.subscription = p_subscription and n.subject = p_subject and n.subject_id = any(p_ids)
			and n.state = 'handed_out' and n.token = p_token
		order by n.subject_id
		for update
	), extended as (
		update announcements n set locked_until = clock_timestamp() + make_interval(secs => p_lease_s)
		from held h
		where n.subscription = h.subscription and n.subject = h.subject and n.subject_id = h.subject_id
		returning 1
	)
	select count(*) into v_held from extended;
	return v_held;
end
$$;
