-- hold_standing(work, token) -> how the bearer of a token stands to the work
-- absent, owner (running, its token), settled (failed, held or dead by anyone, its token still the row's), done (its own
-- completion), other. A null token never matches.
create or replace function :"schema".hold_standing(w :"schema".work_log, p_token uuid)
returns text
language sql stable
as $$
	select case
		when w.work_id is null then 'absent'
		when w.token = p_token then case w.state when 'running' then 'owner' when 'done' then 'done' else 'settled' end
		else 'other'
	end
$$;
