-- page_cursor(time, id) -> the cursor of a page that ends there, to the microsecond; see read_page_cursor
create or replace function :"schema".page_cursor(p_at timestamptz, p_id text)
returns text
language sql stable
as $$
	select to_char(p_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') || ' ' || p_id
$$;
