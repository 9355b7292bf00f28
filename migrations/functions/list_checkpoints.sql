-- list_checkpoints(filter, limit, cursor) -> json {"checkpoints": [{…}, …], "cursor": text or null}
-- By name, then run id. filter: {"name": the whole name, "text": part of the name or run id, in any case}. cursor: that of
-- the page before.
create or replace function :"schema".list_checkpoints(p_filter jsonb, p_limit integer, p_cursor text)
returns json
language plpgsql stable security definer
set search_path = :"schema", pg_temp
as $$
declare
	v_limit integer := greatest(1, least(coalesce(p_limit, 50), 1000));
	v_after text[];
	v_checkpoints json;
	v_next text;
	v_count integer;
begin
	if p_filter - '{name,text}'::text[] <> '{}' then
		raise exception 'unknown filter: %', (select string_agg(k, ', ') from jsonb_object_keys(p_filter) k
			where k <> all ('{name,text}')) using errcode = '22023';
	end if;
	if p_cursor is not null then
		begin
			select array_agg(e.part order by e.ord) into v_after
			from json_array_elements_text(p_cursor::json) with ordinality as e(part, ord);
		exception when others then
			v_after := null;
		end;
		if cardinality(v_after) is distinct from 2 or array_position(v_after, null) is not null then
			raise exception 'the cursor is not one that list gave' using errcode = '22023', hint = 'Begin without a cursor.';
		end if;
	end if;
	with page as materialized (
		select c as checkpoint, c.name, c.run_id
		from checkpoints c
		where (p_filter ->> 'name' is null or c.name = p_filter ->> 'name')
			and (p_filter ->> 'text' is null or position(lower(p_filter ->> 'text') in lower(c.name)) > 0
				or position(lower(p_filter ->> 'text') in lower(c.run_id)) > 0)
			and (v_after is null or (c.name, c.run_id) > (v_after[1] collate "C", v_after[2] collate "C"))
		order by c.name, c.run_id
		limit v_limit
	)
	select json_agg(checkpoint_report(p.checkpoint) order by p.name, p.run_id), count(*),
		(array_agg(json_build_array(p.name, p.run_id)::text order by p.name desc, p.run_id desc))[1]
	into v_checkpoints, v_count, v_next
	from page p;
	return json_build_object('checkpoints', coalesce(v_checkpoints, '[]'), 'cursor', case when v_count = v_limit then v_next end);
end
$$;
