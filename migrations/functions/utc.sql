-- utc(time) -> ISO 8601 text in UTC, whatever the session's time zone and date style are
create or replace function :"schema".utc(p_time timestamptz)
returns text
language sql stable
as $$
	select to_char(p_time at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
$$;
