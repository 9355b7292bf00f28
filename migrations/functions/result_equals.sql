-- result_equals(work, offered) -> is this the result that is stored?
-- By text first, then by value (key order and spacing do not count); values jsonb refuses (NUL) count by text alone.
-- A stub has only the hash of the text.
create or replace function :"schema".result_equals(w :"schema".work_log, p_offered json)
returns boolean
language plpgsql immutable
as $$
begin
	if w.stub then
		return w.result_hash is not distinct from encode(sha256(convert_to(p_offered::text, 'UTF8')), 'hex');
	end if;
	if w.result is null or p_offered is null then
		return w.result is null and p_offered is null;
	end if;
	return w.result::text = p_offered::text or w.result::jsonb = p_offered::jsonb;
exception
	when untranslatable_character or invalid_text_representation then
		return false;
end
$$;
