-- purge_decisions(older_than_s, batch) -> how many rows of the decision log this batch deleted
-- Its retention is apart from that of works. Call it until it answers 0.
create or replace function :"schema".purge_decisions(p_older_than_s double precision, p_batch integer)
returns integer
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
as $$
declare
	v_count integer;
begin
	if p_older_than_s is null or not (p_older_than_s >= 0 and p_older_than_s <= 3.2e9) then
		raise exception 'older_than_s must be from 0 to 3.2e9, not %', coalesce(p_older_than_s::text, 'null') using errcode = '22023';
	end if;
	if not (coalesce(p_batch, 0) between 1 and 100000) then
		raise exception 'batch must be from 1 to 100000, not %', coalesce(p_batch::text, 'null') using errcode = '22023';
	end if;
	delete from decision_log d
	using (
		select f.ctid as row_id from decision_log f
		where f.at <= clock_timestamp() - make_interval(secs => p_older_than_s)
		limit p_batch
		for update skip locked
	) old
	where d.ctid = old.row_id;
	get diagnostics v_count = row_count;
	return v_count;
end
$$;
