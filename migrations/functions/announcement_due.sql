-- announcement_due(announcement, episode, now) -> whether this episode is to be handed out to the subscription
-- True too where there is no row yet. The fifth hand-out is the last.
create or replace function :"schema".announcement_due(
	a :"schema".announcements, p_episode text, p_now timestamptz
)
returns boolean
language sql stable
as $$
	select a.episode is distinct from p_episode
		or (a.state = 'handed_out' and a.locked_until <= p_now and a.attempt < 5)
		or (a.state = 'waiting' and a.next_attempt_at <= p_now)
$$;
