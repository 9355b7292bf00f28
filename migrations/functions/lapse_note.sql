-- lapse_note(work) -> the last error of an attempt whose owner vanished; keeps what the attempt before it reported
create or replace function :"schema".lapse_note(w :"schema".work_log)
returns text
language sql stable
as $$
	select 'lease lapsed: the owner of attempt ' || w.attempt || ' of ' || w.max_attempts || ' vanished'
		|| case when w.last_error is null or w.last_error like 'lease lapsed:%' then ''
			else '; before that: ' || left(w.last_error, 2000) end
$$;
