-- purge_works(states, older_than_s, batch, stub, options) -> how many rows this batch purged
-- Done (and, if named, dead) works whose last change is older than that; never others. Call it until it answers 0. With
-- stub (the default of the package) the row stays without result and data, so that "forever" stays true; without, it is
-- deleted, but each kind's newest success stays: "until another kind succeeds" asks for it. Passes over locked rows.
create or replace function :"schema".purge_works(
	p_states text[], p_older_than_s double precision, p_batch integer, p_stub boolean, p_options jsonb
)
returns integer
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
as $$
declare
	v_before timestamptz;
	v_ids text[];
begin
	if p_states is null or p_states = '{}' or not p_states <@ '{done,dead}' then
		raise exception 'states must be done, dead or both, not %', coalesce(p_states::text, 'null') using errcode = '22023';
	end if;
	if p_older_than_s is null or not (p_older_than_s >= 0 and p_older_than_s <= 3.2e9) then
		raise exception 'older_than_s must be from 0 to 3.2e9, not %', coalesce(p_older_than_s::text, 'null') using errcode = '22023';
	end if;
	-- null must not delete
	p_stub := coalesce(p_stub, true);
	if not (coalesce(p_batch, 0) between 1 and 10000) then
		raise exception 'batch must be from 1 to 10000, not %', coalesce(p_batch::text, 'null') using errcode = '22023';
	end if;
	v_before := clock_timestamp() - make_interval(secs => p_older_than_s);
	select array_agg(f.work_id) into v_ids
	from (
		select w.work_id
		from work_log w
		where w.state = any(p_states) and w.updated_at <= v_before
			and (not p_stub or not w.stub)
			and (p_stub or w.last_done_at is null or w.last_done_at < (
				select max(n.last_done_at) from work_log n where n.kind = w.kind))
		limit p_batch
		for update skip locked
	) f;
	if v_ids is null then
		return 0;
	end if;
	if p_stub then
		update work_log set
			result_hash = coalesce(result_hash, encode(sha256(convert_to(result::text, 'UTF8')), 'hex')),
			result = null, payload = null, prior = null, prior_result = null, match = null, stub = true
		where work_id = any(v_ids);
	else
		delete from work_log where work_id = any(v_ids);
	end if;
	insert into decision_log (work_id, event, outcome, fired)
	select u.id, 'purge', case when p_stub then 'stub' else 'deleted' end, p_options -> 'caller' from unnest(v_ids) u(id);
	return cardinality(v_ids);
end
$$;
