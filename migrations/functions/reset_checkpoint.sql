-- reset_checkpoint(name, run_id, token, options) -> json {"status": reset or absent, "cursor": where it stood, or null}
-- The checkpoint is gone: the next run begins at the start, and may compare otherwise. token: a fresh UUID per call; the
-- same call sent again is answered with its first answer.
create or replace function :"schema".reset_checkpoint(p_name text, p_run_id text, p_token uuid, p_options jsonb)
returns json
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set enable_seqscan = off
as $$
declare
	v_run_id text := coalesce(p_run_id, '');
	v_id text := checkpoint_id(p_name, coalesce(p_run_id, ''));
	v_cursor text;
begin
	perform check_checkpoint_name(p_name, v_run_id);
	if p_token is null then
		raise exception 'token must not be null' using errcode = '22023', hint = 'Make a fresh UUID for every call.';
	end if;
	-- the same call, sent twice at once: the second waits here for the first
	perform pg_advisory_xact_lock(hashtextextended(p_token::text, 0));
	select d.detail ->> 'cursor' into v_cursor
	from decision_log d where d.work_id = v_id and d.token = p_token and d.event = 'reset_checkpoint'
		and d.at > now() - interval '1 hour';
	if not found then
		delete from checkpoints where name = p_name and run_id = v_run_id returning cursor_text into v_cursor;
		insert into decision_log (work_id, event, outcome, token, fired, detail)
		values (v_id, 'reset_checkpoint', case when v_cursor is null then 'absent' else 'reset' end, p_token, p_options -> 'caller',
			jsonb_strip_nulls(jsonb_build_object('name', p_name, 'runId', v_run_id, 'cursor', v_cursor)));
	end if;
	return json_build_object('status', case when v_cursor is null then 'absent' else 'reset' end, 'cursor', v_cursor);
end
$$;
