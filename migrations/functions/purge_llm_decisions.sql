-- purge_llm_decisions(older_than_s, batch, options) -> how many decisions this batch deleted
-- Decisions whose last change is older than that, and open questions; never what waits for approval or is being decided.
-- Call it until it answers 0. A purged question is asked anew when it comes again. Passes over locked rows.
create or replace function :"schema".purge_llm_decisions(p_older_than_s double precision, p_batch integer, p_options jsonb)
returns integer
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
as $$
declare
	v_keys text[];
begin
	if p_older_than_s is null or not (p_older_than_s >= 0 and p_older_than_s <= 3.2e9) then
		raise exception 'older_than_s must be from 0 to 3.2e9, not %', coalesce(p_older_than_s::text, 'null') using errcode = '22023';
	end if;
	if not (coalesce(p_batch, 0) between 1 and 10000) then
		raise exception 'batch must be from 1 to 10000, not %', coalesce(p_batch::text, 'null') using errcode = '22023';
	end if;
	with gone as (
		delete from llm_decisions d
		using (
			select f.decision_key from llm_decisions f
			where f.updated_at <= clock_timestamp() - make_interval(secs => p_older_than_s)
				and not (f.state = 'proposed' and coalesce(f.expires_at > clock_timestamp(), true))
				and not (f.state = 'deciding' and f.locked_until > clock_timestamp())
			limit p_batch
			for update skip locked
		) old
		where d.decision_key = old.decision_key
		returning d.decision_key
	)
	select array_agg(decision_key) into v_keys from gone;
	insert into decision_log (work_id, event, outcome, fired)
	select u.key, 'purge', 'deleted', p_options -> 'caller' from unnest(v_keys) u(key);
	return coalesce(cardinality(v_keys), 0);
end
$$;
