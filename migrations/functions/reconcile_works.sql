-- reconcile_works(kind, version, references, work_ids, options) -> one row "summary", then one finding per record and work
-- The target system's records (their references and, where they hold one, the work_id they belong to) against the
-- ledger. Owed a record is every work of the kind that was done in [from, to); works done up to margin_s outside it are
-- looked at too, so that a record at the edge is not unknown. A work_id finds its work whenever it was done.
-- options: {"from": time, "to": time} or {"last_s": seconds, "settle_s": seconds before now where the range ends},
-- "margin_s", "run": a UUID of the caller (sent again, nothing is logged twice), "unreadable": records left out, "caller".
create or replace function :"schema".reconcile_works(
	p_kind text, p_version text, p_references text[], p_work_ids text[], p_options jsonb
)
returns table (
	ord integer, status text, work_id text, key text, state text, generation integer, external_ref text,
	done_at timestamptz, more jsonb
)
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set plan_cache_mode = force_custom_plan
set jit = off
-- statistics of a young table lag behind: never scan it
set enable_seqscan = off
-- nor are there any of what was just read: ten thousand against ten thousand must not become a loop in a loop
set enable_nestloop = off
as $$
#variable_conflict use_column
declare
	-- records, and works looked at: what one call may hold in memory
	v_most constant integer := 100000;
	-- what a finding or the log lists by name; the counts are complete
	v_listed constant integer := 20;
	v_space constant text := E' \t\n\r\f\v';
	v_now timestamptz := clock_timestamp();
	v_from timestamptz := (p_options ->> 'from')::timestamptz;
	v_to timestamptz := (p_options ->> 'to')::timestamptz;
	v_last double precision := (p_options ->> 'last_s')::double precision;
	v_settle double precision := coalesce((p_options ->> 'settle_s')::double precision, 0);
	v_margin_s double precision := coalesce((p_options ->> 'margin_s')::double precision, 86400);
	v_margin interval;
	v_run uuid := coalesce((p_options ->> 'run')::uuid, gen_random_uuid());
	-- a run is no work. No work's id is made from a text that begins with ":", for no kind is empty.
	v_run_id text := encode(sha256(convert_to(':reconcile:' || p_kind || ':' || p_version, 'UTF8')), 'hex');
	v_first_time boolean;
begin
	if p_options - '{from,to,last_s,settle_s,margin_s,run,unreadable,caller}'::text[] <> '{}' then
		raise exception 'unknown option: %', (select string_agg(k, ', ' order by k) from jsonb_object_keys(p_options) k
			where k <> all ('{from,to,last_s,settle_s,margin_s,run,unreadable,caller}'))
			using errcode = '22023', hint = 'The options are listed in docs/sql.md.';
	end if;
	if coalesce(p_kind, '') = '' or coalesce(p_version, '') = '' then
		raise exception 'kind and version must be texts, not empty' using errcode = '22023';
	end if;
	if cardinality(p_references) > v_most then
		raise exception '% records: one reconciliation takes at most %', cardinality(p_references), v_most
			using errcode = '22023', hint = 'Narrow the range and list the records of that range only.';
	end if;
	if exists (select 1 from unnest(p_references) r where coalesce(btrim(r, v_space), '') = '') then
		raise exception 'every record needs a reference that is not empty' using errcode = '22023';
	end if;
	if cardinality(p_work_ids) > cardinality(p_references) then
		raise exception 'work_ids must hold one work_id (or null) for each reference' using errcode = '22023';
	end if;
	if v_last is not null then
		if v_from is not null or v_to is not null then
			raise exception 'give last_s, or from and to, not both' using errcode = '22023';
		end if;
		if not (v_last > 0 and v_last <= 3.2e9) or not (v_settle >= 0 and v_settle <= 3.2e9) then
			raise exception 'last_s must be above 0 and settle_s from 0, both at most 3.2e9, not % and %', v_last, v_settle
				using errcode = '22023';
		end if;
		v_to := v_now - make_interval(secs => v_settle);
		v_from := v_to - make_interval(secs => v_last);
	end if;
	if v_from is null or v_to is null or v_from >= v_to then
		raise exception 'the range must begin before it ends, not from % to %', coalesce(utc(v_from), 'null'), coalesce(utc(v_to), 'null')
			using errcode = '22023';
	end if;
	if not (v_margin_s >= 0 and v_margin_s <= 3.2e9) then
		raise exception 'margin_s must be from 0 to 3.2e9, not %', v_margin_s using errcode = '22023';
	end if;
	v_margin := make_interval(secs => v_margin_s);
	if v_most < (
		select count(*) from (
			select 1 from work_log w
			where w.kind = p_kind and w.last_done_at >= v_from - v_margin and w.last_done_at < v_to + v_margin
			limit v_most + 1
		) counted
	) then
		raise exception 'more than % works of this kind were done in this time', v_most
			using errcode = '22023', hint = 'Narrow the range, or the margin around it.';
	end if;

	-- the same call sent again may meet the first one still at work
	perform pg_advisory_xact_lock(hashtextextended('reconcile:' || v_run, 0));
	v_first_time := not exists (
		select 1 from decision_log d where d.work_id = v_run_id and d.event = 'reconcile' and d.token = v_run);

	return query
	with records as materialized (
		select (i.nth - 1)::integer as ord, btrim(i.ref, v_space) as ref, i.named
		from unnest(p_references, p_work_ids) with ordinality as i(ref, named, nth)
	), candidates as (
		select w.work_id, w.key, w.state, w.generation, w.attempt, w.external_ref, w.last_done_at, w.outcome_known,
			w.locked_until, w.next_attempt_at, w.last_error
		from work_log w
		where w.kind = p_kind and w.version = p_version
			and w.last_done_at >= v_from - v_margin and w.last_done_at < v_to + v_margin
		union all
		-- whatever its state, whenever it was done
		select w.work_id, w.key, w.state, w.generation, w.attempt, w.external_ref, w.last_done_at, w.outcome_known,
			w.locked_until, w.next_attempt_at, w.last_error
		from work_log w
		where w.work_id = any(p_work_ids) and w.kind = p_kind and w.version = p_version
		union all
		-- a reference recorded, and no completion yet
		(select w.work_id, w.key, w.state, w.generation, w.attempt, w.external_ref, w.last_done_at, w.outcome_known,
			w.locked_until, w.next_attempt_at, w.last_error
		from work_log w
		where w.state = 'running' and w.kind = p_kind and w.version = p_version and w.external_ref is not null
		limit v_most)
	), works as materialized (
		select distinct on (c.work_id) c.*, nullif(btrim(c.external_ref, v_space), '') as ref,
			c.state = 'done' and c.last_done_at >= v_from and c.last_done_at < v_to as owed
		from candidates c
		order by c.work_id
	), earlier as materialized (
		-- work that was begun anew has a record of each time it was done; the claim or replay that began it logged the reference
		select d.work_id, btrim(d.external_ref, v_space) as ref, max(d.generation) - 1 as generation
		from decision_log d
		join works w on w.work_id = d.work_id
		where d.work_id = any(array(select w.work_id from works w where w.generation > 1))
			and d.external_ref is not null
			and ((d.event = 'claim' and d.outcome = 'claimed') or (d.event = 'replay' and d.outcome = 'due'))
			and d.generation <= w.generation
			and w.ref is distinct from btrim(d.external_ref, v_space)
		group by 1, 2
	), by_reference as materialized (
		select distinct on (r.ref) r.ref, r.work_id, r.earlier
		from (
			select w.ref, w.work_id, w.state, null::integer as earlier from works w where w.ref is not null
			union all
			select e.ref, e.work_id, 'done', e.generation from earlier e
		) r
		order by r.ref, r.earlier nulls first, r.state <> 'done', r.work_id
	), assigned as materialized (
		-- a record belongs to the work it names, else to the work whose reference it has
		select r.ord, r.ref, r.named, k.work_id is not null as by_name, coalesce(k.work_id, b.work_id) as work_id,
			case when k.work_id is null then b.earlier else e.generation end as earlier
		from records r
		left join works k on k.work_id = r.named
		left join by_reference b on b.ref = r.ref
		left join earlier e on e.work_id = k.work_id and e.ref = r.ref
	), same_reference as (
		select r.ref, count(*) as count, (array_agg(r.ord order by r.ord))[1:v_listed] as ords
		from records r
		group by r.ref
		having count(*) > 1
	), same_work as (
		select coalesce(a.work_id, a.named) as id, count(*) as count, (array_agg(a.ord order by a.ord))[1:v_listed] as ords
		from assigned a
		where a.earlier is null and coalesce(a.work_id, a.named) is not null
		group by 1
		having count(*) > 1
	), judged as materialized (
		select a.ord, a.ref as target_ref, a.named, a.earlier, w.*,
			case
				when sr.ref is not null or sw.id is not null then 'duplicated_in_target'
				when a.work_id is null then 'unknown_to_ledger'
				when not a.by_name and a.named is not null then 'different_key'
				when a.earlier is not null then 'matched'
				when w.state <> 'done' then 'not_done'
				when w.ref <> a.ref then 'different_reference'
				else 'matched'
			end as status,
			jsonb_build_object('by', case when a.work_id is null then null when a.by_name then 'key' else 'reference' end,
				'earlier', a.earlier,
				'sameReference', sr.count, 'sameWork', sw.count, 'records', to_jsonb(coalesce(sr.ords, '{}') || coalesce(sw.ords, '{}')),
				'takenBy', null::integer) as more
		from assigned a
		left join works w on w.work_id = a.work_id
		left join same_reference sr on sr.ref = a.ref
		left join same_work sw on sw.id = coalesce(a.work_id, a.named) and a.earlier is null
	), first_holder as (
		select distinct on (a.ref) a.ref, a.ord from assigned a where a.work_id is not null order by a.ref, a.ord
	), findings as materialized (
		select j.ord, j.status, j.work_id, j.key, j.state, j.generation, j.attempt, j.external_ref, j.last_done_at, j.outcome_known,
			j.locked_until, j.next_attempt_at, j.last_error, j.target_ref, j.earlier, j.more
		from judged j
		union all
		select null, case when w.ref is null then 'not_comparable' else 'missing_in_target' end,
			w.work_id, w.key, w.state, w.generation, w.attempt, w.external_ref, w.last_done_at, w.outcome_known,
			w.locked_until, w.next_attempt_at, w.last_error, null, null, jsonb_build_object('takenBy', h.ord)
		from works w
		left join first_holder h on h.ref = w.ref
		where w.owed and not exists (select 1 from assigned a where a.work_id = w.work_id and a.earlier is null)
	), drifting as materialized (
		select distinct on (f.work_id) f.*
		from findings f
		where f.status in ('duplicated_in_target', 'different_key', 'different_reference', 'missing_in_target', 'not_done')
			and f.work_id is not null
			-- its owner is about to say so
			and not (f.status = 'not_done' and f.state = 'running' and f.locked_until > v_now)
		order by f.work_id, f.earlier nulls first, f.ord
	), summed as materialized (
		select jsonb_build_object(
			'from', utc(v_from), 'to', utc(v_to), 'marginSeconds', v_margin_s,
			'records', cardinality(p_references), 'works', (select count(*) from works w where w.owed),
			'unreadable', coalesce((p_options ->> 'unreadable')::integer, 0),
			'drifting', (select count(*) from drifting),
			'findings', (
				select coalesce(jsonb_object_agg(c.status, c.count), '{}')
				from (select f.status, count(*) as count from findings f group by f.status) c),
			'unknown', (
				select coalesce(jsonb_agg(u.target_ref order by u.ord), '[]')
				from (select f.target_ref, f.ord from findings f where f.status = 'unknown_to_ledger' order by f.ord limit v_listed) u)
		) as summary
	), logged as (
		insert into decision_log (work_id, event, outcome, generation, attempt, fired, checked, detail, external_ref)
		select d.work_id, 'reconcile', d.status, d.generation, d.attempt, p_options -> 'caller',
			jsonb_strip_nulls(jsonb_build_object('found', d.state, 'run', v_run, 'from', utc(v_from), 'to', utc(v_to),
				'unreadable', nullif((p_options ->> 'unreadable')::integer, 0))),
			jsonb_strip_nulls(jsonb_build_object('targetRef', d.target_ref, 'sameReference', d.more -> 'sameReference',
				'sameWork', d.more -> 'sameWork')),
			d.external_ref
		from drifting d
		where v_first_time
	), noted as (
		insert into decision_log (work_id, event, outcome, token, fired, checked, detail)
		select v_run_id, 'reconcile',
			case when (s.summary -> 'findings') - '{matched,not_comparable}'::text[] = '{}' then 'no_drift' else 'drift' end, v_run,
			p_options -> 'caller', jsonb_build_object('kind', p_kind, 'version', p_version), s.summary
		from summed s
		where v_first_time
	)
	select null::integer, 'summary', null::text, null::text, null::text, null::integer, null::text, null::timestamptz, s.summary
	from summed s
	union all
	(select f.ord, f.status, f.work_id, f.key, f.state, f.generation, f.external_ref, f.last_done_at,
		jsonb_strip_nulls(f.more || jsonb_build_object('targetRef', f.target_ref,
			'outcomeKnown', case when f.state <> 'done' then f.outcome_known end,
			'lockedUntil', case when f.state = 'running' then utc(f.locked_until) end,
			'lapsed', case when f.state = 'running' then f.locked_until <= v_now end,
			'nextAttemptAt', utc(f.next_attempt_at), 'lastError', case when f.state <> 'done' then f.last_error end))
	from findings f
	order by f.ord nulls last, f.work_id);
end
$$;
