-- check_race(kind): raises 22023 unless the kind is one of fires-twice tests, which no business may have
create or replace function :"schema".check_race(p_kind text)
returns void
language plpgsql immutable
as $$
begin
	if p_kind is null or p_kind not like '_% (fires-twice test)' then
		raise exception 'kind must end in " (fires-twice test)", not %', coalesce(quote_literal(p_kind), 'null') using errcode = '22023';
	end if;
end
$$;
