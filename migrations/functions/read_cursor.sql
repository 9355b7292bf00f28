-- read_cursor(compare, cursor) -> cursor_text as it is kept, and the rank it is compared by (null for text)
-- number: plain decimal digits of any length. time: ISO 8601 with a zone, down to 12 digits of a second; kept as UTC.
-- text: 1 to 500 characters, compared byte by byte. Raises 22023 for anything else.
create or replace function :"schema".read_cursor(p_compare text, p_cursor text, out cursor_text text, out rank numeric)
language plpgsql stable
as $$
declare
	v_parts text[];
	v_second timestamptz;
	v_fraction text;
begin
	if p_compare = 'number' then
		if p_cursor is null or p_cursor !~ '^-?[0-9]{1,200}([.][0-9]{1,100})?$' then
			raise exception 'the cursor % is no plain decimal number', coalesce(quote_literal(left(p_cursor, 100)), 'null')
				using errcode = '22023', hint = 'Send digits, or compare as time or text.';
		end if;
		cursor_text := p_cursor;
		rank := p_cursor::numeric;
	elsif p_compare = 'time' then
		v_parts := regexp_match(p_cursor, '^([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})'
			|| '(?:[.]([0-9]{1,12}))?([Zz]|[+-][0-9]{2}:?[0-9]{2})$');
		if v_parts is null then
			raise exception 'the cursor % is no ISO 8601 time with a zone', coalesce(quote_literal(left(p_cursor, 100)), 'null')
				using errcode = '22023', hint = 'Send for example 2026-01-31T10:00:00Z: without a zone it is no certain moment.';
		end if;
		v_second := (v_parts[1] || 'T' || v_parts[2] || v_parts[4])::timestamptz;
		v_fraction := rtrim(coalesce(v_parts[3], ''), '0');
		cursor_text := to_char(v_second at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS') || '.'
			|| case when length(v_fraction) < 3 then rpad(v_fraction, 3, '0') else v_fraction end || 'Z';
		rank := extract(epoch from v_second)::numeric + ('0.' || v_fraction || '0')::numeric;
	elsif p_compare = 'text' then
		if p_cursor is null or not (char_length(p_cursor) between 1 and 500) then
			raise exception 'a cursor compared as text has 1 to 500 characters, not %', coalesce(char_length(p_cursor)::text, 'null')
				using errcode = '22023';
		end if;
		cursor_text := p_cursor;
	else
		raise exception 'compare must be number, time or text, not %', coalesce(quote_literal(left(p_compare, 100)), 'null')
			using errcode = '22023';
	end if;
end
$$;
