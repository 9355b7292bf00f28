-- explain_work(work_id, limit) -> json {"work": {…} or null, "history": [{…}, …], "more": is there older history?}
-- One work and its newest decisions, oldest first: the answer to "why was this a duplicate?". null: the ledger never saw it.
create or replace function :"schema".explain_work(p_work_id text, p_limit integer)
returns json
language plpgsql stable security definer
set search_path = :"schema", pg_temp
as $$
declare
	w work_log;
	v_limit integer := greatest(1, least(coalesce(p_limit, 200), 1000));
	v_history json;
	v_count integer;
begin
	select * into w from work_log where work_id = p_work_id;
	select json_agg(json_build_object(
			'at', utc(h.at), 'event', h.event, 'outcome', h.outcome, 'generation', h.generation, 'attempt', h.attempt,
			'token', h.token, 'fired', h.fired, 'checked', h.checked, 'detail', h.detail,
			'result', h.result, 'externalRef', h.external_ref) order by h.id),
		count(*)
	into v_history, v_count
	from (
		select d.* from decision_log d where d.work_id = p_work_id order by d.id desc limit v_limit + 1
	) h
	where h.id > coalesce((
		select d.id from decision_log d where d.work_id = p_work_id order by d.id desc offset v_limit limit 1), 0);
	if w.work_id is null and v_count = 0 then
		return null;
	end if;
	return json_build_object('work', case when w.work_id is not null then work_report(w) end,
		'history', coalesce(v_history, '[]'), 'more', v_count = v_limit and exists (
			select 1 from decision_log d where d.work_id = p_work_id order by d.id desc offset v_limit limit 1));
end
$$;
