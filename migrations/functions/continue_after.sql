-- continue_after(name, run_id, compare, cursors, token, options) -> json {"status", "checkpoint", "skip": [boolean, …], …}
-- Which of these cursors stand at or before the checkpoint, in their order. status: continued, from_start (there is no
-- checkpoint: nothing is skipped) or refused (it is compared otherwise). One decision for all of them, not one each: how
-- many were skipped, from which to which. token: a fresh UUID per call; sent again, nothing is logged twice.
create or replace function :"schema".continue_after(
	p_name text, p_run_id text, p_compare text, p_cursors text[], p_token uuid, p_options jsonb
)
returns json
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set enable_seqscan = off
as $$
declare
	c checkpoints;
	v_run_id text := coalesce(p_run_id, '');
	v_id text := checkpoint_id(p_name, coalesce(p_run_id, ''));
	v_found boolean;
	v_skip json;
	v_skipped integer;
	v_from text;
	v_to text;
begin
	perform check_checkpoint_name(p_name, v_run_id);
	if p_token is null then
		raise exception 'token must not be null' using errcode = '22023', hint = 'Make a fresh UUID for every call.';
	end if;
	perform pg_advisory_xact_lock(hashtextextended(p_token::text, 0));
	select * into c from checkpoints where name = p_name and run_id = v_run_id;
	v_found := found;
	if v_found and c.compare is distinct from p_compare then
		return json_build_object('status', 'refused', 'reason', 'it is compared as ' || c.compare || ', not as '
			|| coalesce(p_compare, 'null') || ': reset it first if that shall change', 'checkpoint', checkpoint_report(c));
	end if;
	select json_agg(g.skip order by g.ord), count(*) filter (where g.skip),
		(array_agg(g.cursor_text order by g.rank, g.cursor_text collate "C") filter (where g.skip))[1],
		(array_agg(g.cursor_text order by g.rank desc, g.cursor_text collate "C" desc) filter (where g.skip))[1]
	into v_skip, v_skipped, v_from, v_to
	from (
		select u.ord, k.cursor_text, k.rank,
			v_found and coalesce(k.rank <= c.rank, k.cursor_text <= c.cursor_text collate "C") as skip
		from unnest(p_cursors) with ordinality as u(given, ord) cross join lateral read_cursor(p_compare, u.given) k
	) g;
	if not exists (
		select 1 from decision_log d where d.work_id = v_id and d.token = p_token and d.event = 'continue_after'
			and d.at > now() - interval '1 hour'
	) then
		insert into decision_log (work_id, event, outcome, token, fired, checked, detail)
		values (v_id, 'continue_after', case when v_found then 'continued' else 'from_start' end, p_token, p_options -> 'caller',
			jsonb_strip_nulls(jsonb_build_object('found', c.cursor_text)),
			jsonb_strip_nulls(jsonb_build_object('name', p_name, 'runId', v_run_id, 'skipped', coalesce(v_skipped, 0),
				'passed', coalesce(cardinality(p_cursors), 0) - coalesce(v_skipped, 0), 'from', v_from, 'to', v_to)));
	end if;
	return json_build_object('status', case when v_found then 'continued' else 'from_start' end, 'reason', null,
		'checkpoint', case when v_found then checkpoint_report(c) end,
		'skip', coalesce(v_skip, '[]'), 'skipped', coalesce(v_skipped, 0), 'from', v_from, 'to', v_to);
end
$$;
