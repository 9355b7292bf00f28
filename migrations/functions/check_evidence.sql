-- check_evidence(record_ids, tokens, checks, options) -> outcome per check, in the order given: passed, blocked, refused, error
-- Decides whether records may advance, and logs every check. The caller has applied the rules about the record's own
-- fields and says what it found; what the rules ask of the ledger is looked up here, in the statement that logs it.
-- tokens: a fresh UUID per check, made before the statement is sent. A resend is answered from the log.
create or replace function :"schema".check_evidence(
	p_record_ids text[], p_tokens uuid[], p_checks jsonb[], p_options jsonb
)
returns table (ord integer, record_id text, outcome text, ledger jsonb)
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set plan_cache_mode = force_custom_plan
set jit = off
-- statistics of a young table lag behind: never scan it
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
	v_caller jsonb := p_options -> 'caller';
begin
	if cardinality(p_record_ids) = 0 then
		return;
	end if;
	if cardinality(p_tokens) is distinct from cardinality(p_record_ids) or array_position(p_tokens, null) is not null then
		raise exception 'tokens must hold a fresh UUID for each record_id' using errcode = '22023';
	end if;
	if cardinality(p_checks) is distinct from cardinality(p_record_ids) or array_position(p_checks, null) is not null then
		raise exception 'checks must hold one check for each record_id' using errcode = '22023';
	end if;
	if exists (select 1 from unnest(p_record_ids) r where r is null or r !~ '^[0-9a-f]{64}$') then
		raise exception 'record_ids must be 64 lower-case hex digits each' using errcode = '22023';
	end if;
	-- a misspelt "verdict" must not pass as none
	if exists (
		select 1 from unnest(p_checks) c
		where jsonb_typeof(c) <> 'object' or c - '{stage,rules,verdict,missing,ledger}'::text[] <> '{}'
			or (c ->> 'verdict') not in ('blocked', 'refused', 'error')
			or jsonb_typeof(c -> 'ledger') <> 'array' or jsonb_typeof(c -> 'missing') <> 'array'
			or jsonb_typeof(c -> 'rules') is distinct from 'number'
	) then
		raise exception 'a check is {"stage", "rules", "verdict", "missing", "ledger"}: verdict is blocked, refused or error, or null where all rules about fields hold'
			using errcode = '22023', hint = 'See docs/sql.md.';
	end if;

	-- the same call sent again may meet the first one, whose answer was lost but which still runs
	perform pg_advisory_xact_lock(hashtextextended(p_tokens[1]::text, 0));
	-- one transaction wrote them all: the first tells
	if exists (
		select 1 from decision_log d
		where d.work_id = p_record_ids[1] and d.token = p_tokens[1] and d.event = 'check_evidence'
	) then
		return query
		select i.ord::integer - 1, i.record_id, coalesce(d.outcome, 'error'), coalesce(d.checked -> 'ledger', '[]')
		from unnest(p_record_ids, p_tokens) with ordinality as i(record_id, token, ord)
		left join decision_log d on d.work_id = i.record_id and d.token = i.token and d.event = 'check_evidence'
		order by i.ord;
		return;
	end if;

	return query
	with input as materialized (
		select i.*
		from unnest(p_record_ids, p_tokens, p_checks) with ordinality as i(record_id, token, asked, ord)
	), found as materialized (
		select i.ord, q.nth, coalesce((q.question ->> 'needed')::boolean, true) as needed,
			-- only work that is done is evidence, whatever was recorded of work that runs, waits or is held
			coalesce(w.state = 'done' and (not q.question ? 'reference' or w.external_ref = q.question ->> 'reference'), false) as holds,
			q.question || jsonb_strip_nulls(jsonb_build_object('state', w.state, 'external_ref', w.external_ref,
				'completed_at', case when w.state = 'done' then utc(w.completed_at) end,
				'lapsed', case when w.state = 'running' and w.locked_until <= clock_timestamp() then true end)) as finding
		from input i
		cross join lateral jsonb_array_elements(i.asked -> 'ledger') with ordinality as q(question, nth)
		left join work_log w on w.work_id = q.question ->> 'work_id'
	), findings as (
		select f.ord, bool_and(f.holds or not f.needed) as hold,
			jsonb_agg(f.finding || jsonb_build_object('holds', f.holds) order by f.nth) as findings
		from found f
		group by f.ord
	), judged as materialized (
		select i.*, coalesce(f.findings, '[]') as findings,
			coalesce(i.asked ->> 'verdict',
				-- without a rule there is no evidence
				case when (i.asked ->> 'rules')::numeric >= 1 and coalesce(f.hold, true)
					and coalesce(i.asked -> 'missing', '[]') = '[]' then 'passed' else 'blocked' end) as verdict
		from input i
		left join findings f on f.ord = i.ord
	), logged as (
		insert into decision_log (work_id, event, outcome, token, fired, checked, detail)
		select j.record_id, 'check_evidence', j.verdict, j.token, v_caller,
			jsonb_strip_nulls(jsonb_build_object('stage', j.asked -> 'stage', 'rules', j.asked -> 'rules',
				'ledger', nullif(j.findings, '[]'))),
			case when j.asked -> 'missing' <> '[]' then jsonb_build_object('missing', j.asked -> 'missing') end
		from judged j
		order by j.ord
	)
	select j.ord::integer - 1, j.record_id, j.verdict, j.findings
	from judged j
	order by j.ord;
end
$$;
