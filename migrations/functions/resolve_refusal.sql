-- resolve_refusal(work) -> why nobody can say now what became of this work; null: a person can
create or replace function :"schema".resolve_refusal(w :"schema".work_log)
returns text
language sql stable
as $$
	select case
		when w.state in ('held', 'dead') or (w.state = 'failed' and not w.outcome_known) then null
		when w.state = 'failed' then 'it failed and is known not to have landed: replay it, or wait for its next attempt'
		when w.state = 'running' then case when w.locked_until > clock_timestamp() then 'it is running until ' || utc(w.locked_until)
			else 'its lease ended without a report: the next claim or sweep settles it, then it can be resolved' end
		else 'it is done already'
	end
$$;
