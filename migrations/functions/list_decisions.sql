-- list_decisions(filter, limit, cursor) -> json {"decisions": [{…}, …], "cursor": text or null}
-- The newest change first, at most 500 per page. filter: {"states", "kind", "execution"}.
create or replace function :"schema".list_decisions(p_filter jsonb, p_limit integer, p_cursor text)
returns json
language plpgsql stable security definer
set search_path = :"schema", pg_temp
as $$
declare
	v_limit integer := greatest(1, least(coalesce(p_limit, 50), 500));
	v_at timestamptz;
	v_key text;
	v_decisions json;
	v_count integer;
	v_next text;
begin
	p_filter := coalesce(p_filter, '{}');
	if p_filter - '{states,kind,execution}'::text[] <> '{}' then
		raise exception 'unknown filter: %', (select string_agg(k, ', ') from jsonb_object_keys(p_filter) k
			where k <> all ('{states,kind,execution}')) using errcode = '22023';
	end if;
	if exists (select 1 from jsonb_array_elements_text(coalesce(p_filter -> 'states', '[]')) s
			where s <> all ('{open,deciding,stored,proposed,approved,rejected}')) then
		raise exception 'states must be of open, deciding, stored, proposed, approved and rejected, not %', p_filter -> 'states'
			using errcode = '22023';
	end if;
	select c.at, c.id into v_at, v_key from read_page_cursor(p_cursor) c;
	with page as materialized (
		select d as decision, d.updated_at, d.decision_key
		from llm_decisions d
		where (p_filter -> 'states' is null or p_filter -> 'states' ? d.state)
			and (p_filter ->> 'kind' is null or d.kind = p_filter ->> 'kind')
			and (p_filter ->> 'execution' is null or d.execution = p_filter ->> 'execution')
			and (v_key is null or (d.updated_at, d.decision_key) < (v_at, v_key))
		order by d.updated_at desc, d.decision_key desc
		limit v_limit
	)
	select json_agg(decision_report(p.decision, false) order by p.updated_at desc, p.decision_key desc), count(*),
		(array_agg(page_cursor(p.updated_at, p.decision_key) order by p.updated_at, p.decision_key))[1]
	into v_decisions, v_count, v_next
	from page p;
	return json_build_object('decisions', coalesce(v_decisions, '[]'), 'cursor', case when v_count = v_limit then v_next end);
end
$$;
