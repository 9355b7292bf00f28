-- save_checkpoints(names, run_ids, compares, allow_back, tokens, belongs_to, cursors, options) -> json per checkpoint, see "ord"
-- Each checkpoint moves on to the highest of its cursors; cursors[i] is of checkpoint number belongs_to[i], counted from 1.
-- status: saved, unchanged (it stood there already) or refused: an older cursor over a newer one without allow_back, or
-- another way to compare. So of two savers at once the newer wins, whichever comes first. tokens: a fresh UUID per
-- checkpoint and call; the same call sent again changes nothing and is answered with saved.
create or replace function :"schema".save_checkpoints(
	p_names text[], p_run_ids text[], p_compares text[], p_allow_back boolean[], p_tokens uuid[],
	p_belongs_to integer[], p_cursors text[], p_options jsonb
)
returns setof json
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set enable_seqscan = off
as $$
declare
	c checkpoints;
	v_best record;
	v_before text;
	v_status text;
	v_reason text;
	v_now timestamptz;
	r record;
begin
	for r in
		select n.name, coalesce(n.run_id, '') as run_id, n.compare, coalesce(n.allow_back, false) as allow_back, n.token, n.ord
		from rows from (unnest(p_names), unnest(p_run_ids), unnest(p_compares), unnest(p_allow_back), unnest(p_tokens))
			with ordinality as n(name, run_id, compare, allow_back, token, ord)
		order by n.name collate "C", coalesce(n.run_id, '') collate "C", n.ord
	loop
		perform check_checkpoint_name(r.name, r.run_id);
		if r.token is null then
			raise exception 'token must not be null' using errcode = '22023', hint = 'Make a fresh UUID for every call.';
		end if;
		select k.cursor_text, k.rank, count(*) over () as given into v_best
		from rows from (unnest(p_belongs_to), unnest(p_cursors)) as g(belongs_to, given)
			cross join lateral read_cursor(r.compare, g.given) k
		where g.belongs_to = r.ord
		order by k.rank desc, k.cursor_text collate "C" desc
		limit 1;
		if v_best.cursor_text is null then
			raise exception 'there is no cursor for checkpoint %', quote_literal(r.name) using errcode = '22023';
		end if;

		v_before := null;
		v_reason := null;
		loop
			v_now := clock_timestamp();
			insert into checkpoints (name, run_id, compare, cursor_text, rank, recent, created_at, saved_at, saved_by)
			values (r.name, r.run_id, r.compare, v_best.cursor_text, v_best.rank, array[r.token], v_now, v_now, p_options -> 'caller')
			on conflict (name, run_id) do nothing
			returning * into c;
			if found then
				v_status := 'saved';
				exit;
			end if;
			select * into c from checkpoints where name = r.name and run_id = r.run_id for update;
			-- reset between the two statements: once more
			continue when not found;
			v_before := c.cursor_text;
			if r.token = any(c.recent) then
				v_status := 'repeated';
			elsif c.compare <> r.compare then
				v_status := 'refused';
				v_reason := 'it is compared as ' || c.compare || ', not as ' || r.compare || ': reset it first if that shall change';
			elsif c.cursor_text = v_best.cursor_text or c.rank = v_best.rank then
				v_status := 'unchanged';
			elsif not r.allow_back and coalesce(c.rank > v_best.rank, c.cursor_text > v_best.cursor_text collate "C") then
				v_status := 'refused';
				v_reason := 'it stands at ' || c.cursor_text || ' since ' || utc(c.saved_at) || ', which is newer';
			else
				v_status := 'saved';
				v_now := clock_timestamp();
				update checkpoints set
					cursor_text = v_best.cursor_text, rank = v_best.rank, saved_at = v_now, saved_by = p_options -> 'caller',
					recent = (array[r.token] || c.recent)[1:16]
				where name = r.name and run_id = r.run_id
				returning * into c;
			end if;
			exit;
		end loop;

		if v_status <> 'repeated' then
			insert into decision_log (work_id, event, outcome, token, fired, checked, detail)
			values (checkpoint_id(r.name, r.run_id), 'save_checkpoint', v_status, r.token, p_options -> 'caller',
				jsonb_strip_nulls(jsonb_build_object('found', v_before, 'allowBack', r.allow_back)),
				jsonb_strip_nulls(jsonb_build_object('name', r.name, 'runId', r.run_id, 'cursor', v_best.cursor_text, 'of', v_best.given,
					'reason', v_reason)));
		end if;
		return next json_build_object(
			'ord', r.ord - 1, 'status', case v_status when 'repeated' then 'saved' else v_status end, 'reason', v_reason,
			'repeated', v_status = 'repeated', 'given', v_best.cursor_text,
			'before', case when v_status <> 'repeated' then v_before end, 'of', v_best.given,
			'checkpoint', checkpoint_report(c));
	end loop;
end
$$;
