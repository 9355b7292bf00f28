-- claim_reply(ord, work, outcome, caller, match) -> the answer to a claim, read from the row as it is after the decision
-- A resend gets its first answer again because everything it says stands on the row. "setof": so that it is inlined.
create or replace function :"schema".claim_reply(
	p_ord integer, w :"schema".work_log, p_outcome text, p_caller jsonb, p_match jsonb
)
returns setof :"schema".claim_answer
language sql stable
as $$
	select
		p_ord,
		w.work_id,
		s.status,
		w.state,
		w.generation,
		w.attempt,
		case when s.status = 'claimed' then w.token end,
		case when w.state = 'running' then w.locked_until end,
		w.next_attempt_at,
		case
			when not s.retaken then null
			when not w.outcome_known then 'unknown'
			-- begun anew by a person: nothing of this generation was tried before
			when w.last_error is not null then 'failed'
		end,
		w.last_error,
		case when s.status = 'duplicate' then w.result end,
		case when s.status in ('duplicate', 'held', 'dead') then w.external_ref end,
		w.completed_at,
		case
			when s.retaken then owner_of(jsonb_populate_record(null::work_log, w.prior))
			when s.status <> 'claimed' then owner_of(w)
		end,
		jsonb_strip_nulls(jsonb_build_object(
			'otherWorkflow', case when s.status <> 'claimed' and (
				w.workflow <> p_caller ->> 'workflow' or w.instance <> p_caller ->> 'instance') then true end,
			'resultPurged', case when s.status = 'duplicate' and w.stub then true end,
			'late', case when p_outcome = 'settled' then true end,
			'mismatch', case when p_outcome = 'mismatch' then (
				select jsonb_agg(d.key order by d.key) from jsonb_each(w.match) d where d.value <> p_match -> d.key) end,
			'decisionKey', w.decision_key,
			'outcomeKnown', case when s.status in ('held', 'dead', 'not_due') then w.outcome_known end
		))
	from (
		select
			case
				when p_outcome in ('new', 'renewed', 'retaken', 'resent') then 'claimed'
				when p_outcome = 'settled' then 'duplicate'
				when p_outcome = 'lapse_held' then 'held'
				when p_outcome = 'lapse_dead' then 'dead'
				else p_outcome
			end as status,
			p_outcome in ('retaken', 'resent') and (w.prior ->> 'generation')::integer = w.generation as retaken
	) s
$$;
