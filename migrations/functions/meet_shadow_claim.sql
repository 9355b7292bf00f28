-- meet_shadow_claim(work, outcome, shadow, on_lapse, max_attempts) -> the outcome, where the work was last claimed in shadow mode
-- Such a claim was let through whatever the ledger said, so what becomes of it is decided by the policy of the claim that
-- meets it. In shadow mode that is a report: what would have been held or dead stays as it is. In earnest it may be held
-- (the effect may have landed), and is never dead of attempts that guarded nothing.
create or replace function :"schema".meet_shadow_claim(
	w :"schema".work_log, p_outcome text, p_shadow boolean, p_on_lapse text, p_max_attempts integer
)
returns text
language sql stable
as $$
	select case
		when p_outcome <> 'retaken' then p_outcome
		when p_on_lapse = 'hold' and (w.state = 'running' or not w.outcome_known)
			then case when p_shadow then 'held' else 'lapse_held' end
		when p_shadow and w.attempt >= p_max_attempts then 'dead'
		else p_outcome
	end
$$;
