-- list_works(filter, limit, cursor) -> json {"works": [{…}, …], "cursor": text or null}
-- Newest change first, page by page. filter: {"states": […], "kind": text, "runId": text, "text": part of the readable key,
-- "olderThan": seconds since the last change, "execution": text}. cursor: that of the page before.
create or replace function :"schema".list_works(p_filter jsonb, p_limit integer, p_cursor text)
returns json
language plpgsql stable security definer
set search_path = :"schema", pg_temp
as $$
declare
	v_limit integer := greatest(1, least(coalesce(p_limit, 50), 1000));
	v_at timestamptz;
	v_id text;
	v_works json;
	v_next text;
	v_count integer;
begin
	if p_filter - '{states,kind,runId,text,olderThan,execution}'::text[] <> '{}' then
		raise exception 'unknown filter: %', (select string_agg(k, ', ') from jsonb_object_keys(p_filter) k
			where k <> all ('{states,kind,runId,text,olderThan,execution}')) using errcode = '22023';
	end if;
	if exists (select 1 from jsonb_array_elements_text(coalesce(p_filter -> 'states', '[]')) s
			where s <> all ('{running,done,failed,dead,held}')) then
		raise exception 'states must be of running, done, failed, dead and held, not %', p_filter -> 'states'
			using errcode = '22023';
	end if;
	if not ((p_filter ->> 'olderThan')::double precision between 0 and 3.2e9) then
		raise exception 'olderThan must be from 0 to 3.2e9 seconds, not %', p_filter ->> 'olderThan' using errcode = '22023';
	end if;
	select c.at, c.id into v_at, v_id from read_page_cursor(p_cursor) c;
	with page as materialized (
		select w as work, w.updated_at, w.work_id
		from work_log w
		where (p_filter -> 'states' is null or p_filter -> 'states' ? w.state)
			and (p_filter ->> 'kind' is null or w.kind = p_filter ->> 'kind')
			and (p_filter ->> 'runId' is null or w.run_id = p_filter ->> 'runId')
			and (p_filter ->> 'execution' is null or w.execution = p_filter ->> 'execution')
			and (p_filter ->> 'text' is null or position(lower(p_filter ->> 'text') in lower(w.key)) > 0)
			and (p_filter ->> 'olderThan' is null
				or w.updated_at <= clock_timestamp() - make_interval(secs => (p_filter ->> 'olderThan')::double precision))
			and (v_id is null or (w.updated_at, w.work_id) < (v_at, v_id))
		order by w.updated_at desc, w.work_id desc
		limit v_limit
	)
	select json_agg(work_report(p.work) order by p.updated_at desc, p.work_id desc), count(*),
		(array_agg(page_cursor(p.updated_at, p.work_id) order by p.updated_at, p.work_id))[1]
	into v_works, v_count, v_next
	from page p;
	return json_build_object('works', coalesce(v_works, '[]'), 'cursor', case when v_count = v_limit then v_next end);
end
$$;
