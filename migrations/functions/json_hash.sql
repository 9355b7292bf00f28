-- json_hash(value) -> sha256 of its text, hex: the same bytes, or another value
create or replace function :"schema".json_hash(p_value json)
returns text
language sql immutable
as $$
	select encode(sha256(convert_to(p_value::text, 'UTF8')), 'hex')
$$;
