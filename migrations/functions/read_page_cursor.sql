-- read_page_cursor(cursor) -> the time and the id at which the page before ended; both null without a cursor
-- Throws 22023 for a cursor that no list gave.
create or replace function :"schema".read_page_cursor(p_cursor text, out at timestamptz, out id text)
language plpgsql stable
as $$
begin
	if p_cursor is null then
		return;
	end if;
	-- checked before the cast: "now" and "tomorrow" are times too
	begin
		if p_cursor ~ '^[0-9]{4,6}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z [0-9a-f]{64}$' then
			at := split_part(p_cursor, ' ', 1)::timestamptz;
			id := split_part(p_cursor, ' ', 2);
		end if;
	exception when others then
		id := null;
	end;
	if id is null or at is null then
		raise exception 'the cursor is not one that list gave' using errcode = '22023', hint = 'Begin without a cursor.';
	end if;
end
$$;
