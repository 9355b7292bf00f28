-- episode_of(work) -> one death of this work: what a subscription is told of once
-- The token is fresh per claim, so the next death is another episode; held work that its owner then calls dead is news too.
create or replace function :"schema".episode_of(w :"schema".work_log)
returns text
language sql stable
as $$
	select w.state || ' ' || coalesce(w.token::text, w.generation || '.' || w.attempt)
$$;
