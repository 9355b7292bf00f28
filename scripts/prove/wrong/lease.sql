-- Wrong on purpose (fact S1), for the prove's own database only: the usual lease SQL. It asks whether the lease has ended,
-- not whether the work is done, and so claims finished work again.
drop function idempotency.claim_work;
alter function idempotency.claim_works rename to right_claim_works;

create function idempotency.claim_work(
	p_work_id text, p_key text, p_token uuid, p_payload json, p_detail jsonb, p_options jsonb
)
returns setof idempotency.claim_answer
language plpgsql
set search_path = idempotency, pg_temp
as $$
declare
	w work_log;
begin
	update work_log set
		state = 'running', attempt = attempt + 1, token = p_token,
		locked_until = now() + make_interval(secs => (p_options ->> 'lease_s')::double precision)
	where work_id = p_work_id and (state = 'failed' or locked_until < now())
	returning * into w;
	if not found then
		return query select * from right_claim_works(
			array[p_work_id], array[p_key], array[p_token], array[p_payload], array[p_detail], p_options);
		return;
	end if;
	insert into decision_log (work_id, event, outcome, generation, attempt, token, fired, checked)
	values (p_work_id, 'claim', 'claimed', w.generation, w.attempt, p_token, p_options -> 'caller',
		jsonb_build_object('window', p_options -> 'window'));
	return query select * from claim_reply(0, w, 'retaken', p_options -> 'caller', null);
end
$$;

create function idempotency.claim_works(
	p_work_ids text[], p_keys text[], p_tokens uuid[], p_payloads json[], p_details jsonb[], p_options jsonb
)
returns setof idempotency.claim_answer
language sql
set search_path = idempotency, pg_temp
as $$
	select i.ord::integer - 1, a.work_id, a.status, a.state, a.generation, a.attempt, a.token, a.locked_until,
		a.next_attempt_at, a.previous_outcome, a.last_error, a.result, a.external_ref, a.completed_at, a.owner, a.more
	from (
		select * from unnest(p_work_ids, p_keys, p_tokens, p_payloads, p_details) with ordinality
			as u(work_id, key, token, payload, detail, ord)
		order by u.work_id collate "C", u.ord
	) i
	cross join lateral claim_work(i.work_id, i.key, i.token, i.payload, i.detail, p_options) a
$$;
