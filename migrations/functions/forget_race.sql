-- forget_race(work_id, kind) -> {"works": n, "decisions": n}: what was deleted of a fires-twice test
-- The work, with its rows of the decision log: a test is no business, and would count among duplicates suppressed. Takes
-- along what tests of this kind left that were killed halfway. Only ever touches works of a kind of tests.
create or replace function :"schema".forget_race(p_work_id text, p_kind text)
returns json
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set enable_seqscan = off
as $$
declare
	v_ids text[];
	v_decisions integer;
begin
	perform check_race(p_kind);
	select coalesce(array_agg(f.work_id), '{}') into v_ids
	from (
		select w.work_id
		from work_log w
		where w.kind = p_kind and w.work_id in (
			select p_work_id
			union all
			-- each by an index of its own; a test that lives has a lease, and is done in less than this time
			(select r.work_id from work_log r
				where r.state = 'running' and r.locked_until <= clock_timestamp() and r.kind = p_kind limit 1000)
			union all
			(select e.work_id from work_log e where e.state = 'failed' and e.kind = p_kind limit 1000)
			union all
			(select d.work_id from work_log d
				where d.kind = p_kind and d.last_done_at <= clock_timestamp() - interval '5 minutes' limit 1000)
		)
		order by w.work_id collate "C"
		for update skip locked
	) f;
	delete from work_log where work_id = any(v_ids);
	delete from decision_log where work_id = any(v_ids);
	get diagnostics v_decisions = row_count;
	return json_build_object('works', cardinality(v_ids), 'decisions', v_decisions);
end
$$;
