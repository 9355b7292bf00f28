-- hold_reply(ord, work_id, work, status, more) -> the answer to an operation on a held claim
create or replace function :"schema".hold_reply(
	p_ord integer, p_work_id text, w :"schema".work_log, p_status text, p_more jsonb
)
returns setof :"schema".hold_answer
language sql stable
as $$
	select
		p_ord, p_work_id, p_status, w.state, w.generation, w.attempt, case when w.state = 'running' then w.locked_until end, w.next_attempt_at,
		-- a result is sent back only where it is not the one just given
		case when p_status in ('not_owner', 'refused') or p_more ? 'differs' then w.result end,
		w.external_ref, w.completed_at, w.last_error,
		jsonb_strip_nulls(jsonb_build_object(
			'key', w.key, 'kind', w.kind,
			'reason', case
				when p_status <> 'not_owner' then null
				when w.work_id is null then 'the ledger holds no such work (it was released, purged or forgotten)'
				else 'the work is ' || w.state || ' under another token: attempt ' || w.attempt
					|| coalesce(' of execution ' || w.execution, '') || ', claimed at ' || utc(w.claimed_at)
			end
		)) || p_more
$$;
