-- settle_announcements(subscription, subject, ids, token, error, options) -> where each announcement stands
-- What became of a hand-out. error null: handled. Otherwise it is handed out again later, and given up after five times.
-- not_owner: it was handed out anew meanwhile (its lease had ended). Said again, it changes nothing.
create or replace function :"schema".settle_announcements(
	p_subscription text, p_subject text, p_ids text[], p_token uuid, p_error text, p_options jsonb
)
returns table (subject_id text, status text, hand_out integer, next_attempt_at timestamptz)
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
	a announcements;
	v_id text;
begin
	for v_id in select distinct u.id collate "C" from unnest(p_ids) u(id) order by 1 loop
		select * into a from announcements n
		where n.subscription = p_subscription and n.subject = p_subject and n.subject_id = v_id
		for update;
		-- a token of null is nobody's
		if not found or a.token is distinct from p_token then
			return query select v_id, 'not_owner', null::integer, null::timestamptz;
			continue;
		end if;
		if a.state = 'handed_out' then
			a := settle_announcement(a, left(p_error, 4000), coalesce(p_options -> 'caller', '{}'));
		end if;
		return query select v_id, a.state, a.attempt, a.next_attempt_at;
	end loop;
end
$$;
