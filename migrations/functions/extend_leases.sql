-- extend_leases(work_ids, tokens, lease_s, options) -> hold_answer per item (see ord)
-- The lease then ends lease_s seconds from now (null: the lease the work was claimed with), never earlier than before.
create or replace function :"schema".extend_leases(
	p_work_ids text[], p_tokens uuid[], p_lease_s double precision[], p_options jsonb
)
returns setof :"schema".hold_answer
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set enable_seqscan = off
as $$
declare
	w work_log;
	v_before work_log;
	v_now timestamptz;
	v_standing text;
	v_outcome text;
	v_more jsonb;
	r record;
begin
	for r in
		select i.*
		from unnest(p_work_ids, p_tokens, p_lease_s) with ordinality as i(work_id, token, lease_s, ord)
		order by i.work_id collate "C", i.ord
	loop
		if not (coalesce(r.lease_s, 1) > 0 and coalesce(r.lease_s, 1) <= 31622400) then
			raise exception 'lease_s must be above 0 and at most 31622400 (a year), not %', r.lease_s using errcode = '22023';
		end if;
		select * into w from work_log where work_id = r.work_id for update;
		v_now := clock_timestamp();
		v_before := w;
		v_standing := hold_standing(w, r.token);
		v_more := '{}';

		if v_standing = 'owner' then
			v_outcome := 'extended';
			if w.locked_until <= v_now then
				v_more := '{"late": true}';
			end if;
			update work_log set
				locked_until = greatest(locked_until, v_now + make_interval(secs => coalesce(r.lease_s, lease_s))),
				updated_at = v_now
			where work_id = r.work_id
			returning * into w;
		elsif v_standing in ('absent', 'other') then
			v_outcome := 'not_owner';
		else
			v_outcome := 'refused';
			v_more := jsonb_build_object('reason', 'the work is ' || w.state || ': only running work has a lease to extend');
		end if;

		insert into decision_log (work_id, event, outcome, generation, attempt, token, fired, checked, detail)
		values (r.work_id, 'extend', v_outcome, w.generation, w.attempt, r.token, p_options -> 'caller',
			claim_findings(v_before), nullif(v_more, '{}'));
		return query select * from hold_reply(r.ord::integer - 1, r.work_id, w, v_outcome, v_more);
	end loop;
end
$$;
