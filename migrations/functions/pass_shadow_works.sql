-- pass_shadow_works(work_ids, nonces, event, results, external_refs, options) -> how many rows were written
-- What Claim Work let through in shadow mode without a claim, and what became of it: written to the decision log and to
-- nothing else. Each may be a second effect, so its result and reference are kept in full. nonces: a fresh UUID per item;
-- the same call sent again writes nothing more. results and external_refs may be null. options: {"caller": {…}}.
create or replace function :"schema".pass_shadow_works(
	p_work_ids text[], p_nonces uuid[], p_event text, p_results json[], p_external_refs text[], p_options jsonb
)
returns integer
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set enable_seqscan = off
as $$
declare
	v_count integer;
begin
	if p_event is null or p_event not in ('complete', 'fail', 'record_reference', 'extend', 'release') then
		raise exception 'event must be complete, fail, record_reference, extend or release, not %', coalesce(quote_literal(p_event), 'null')
			using errcode = '22023';
	end if;
	if cardinality(p_nonces) is distinct from cardinality(p_work_ids) or array_position(p_nonces, null) is not null then
		raise exception 'nonces must hold a fresh UUID for each work_id' using errcode = '22023';
	end if;
	if exists (select 1 from unnest(p_work_ids) i where coalesce(i !~ '^[0-9a-f]{64}$', true)) then
		raise exception 'work_ids must hold 64 lower-case hex digits each' using errcode = '22023';
	end if;
	-- a call that is sent again because its answer was lost waits here until the first has ended, and finds its rows
	perform pg_advisory_xact_lock(hashtextextended('n8n-nodes-idempotency:shadow:' || p_nonces[1], 0));
	insert into decision_log (work_id, event, outcome, generation, attempt, token, fired, checked, result, external_ref)
	select i.work_id, p_event, 'shadow', w.generation, w.attempt, i.nonce, p_options -> 'caller',
		jsonb_strip_nulls(jsonb_build_object('shadow', true, 'found', w.state)), i.result, i.external_ref
	from unnest(p_work_ids, p_nonces, p_results, p_external_refs) with ordinality as i(work_id, nonce, result, external_ref, ord)
	left join work_log w on w.work_id = i.work_id
	where not exists (select 1 from decision_log d where d.work_id = i.work_id and d.token = i.nonce)
	order by i.ord;
	get diagnostics v_count = row_count;
	return v_count;
end
$$;
