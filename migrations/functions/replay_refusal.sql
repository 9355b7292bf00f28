-- replay_refusal(work, force, again) -> why this work cannot be replayed now; null: it can
create or replace function :"schema".replay_refusal(w :"schema".work_log, p_force boolean, p_again boolean)
returns text
language sql stable
as $$
	select case
		when w.state = 'failed' and w.settled_by = 'person' and w.token is null and w.next_attempt_at <= clock_timestamp()
			then 'it is due already'
		when w.state = 'running' and w.external_ref is not null
			then 'a reference is recorded (' || w.external_ref || '): its effect has landed, and it is settled as done when its lease ends'
		when w.state = 'running' and not p_force
			then case when w.locked_until > clock_timestamp() then 'it is running until ' else 'its lease ended without a report at ' end
				|| utc(w.locked_until) || '; replay it by force only if its owner is surely gone'
		when w.state = 'done' and not p_again then 'it is done; to do it once more, say "run again on purpose"'
	end
$$;
