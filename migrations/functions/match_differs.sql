-- match_differs(stored, offered) -> do digests of the same fields differ?
-- Compared only where the field lists are equal: a node whose list was edited must not stop old work.
create or replace function :"schema".match_differs(p_stored jsonb, p_offered jsonb)
returns boolean
language sql stable
as $$
	select case
		when p_stored is null or p_offered is null or p_stored = p_offered then false
		else (select array_agg(k order by k) from jsonb_object_keys(p_stored) k)
			= (select array_agg(k order by k) from jsonb_object_keys(p_offered) k)
	end
$$;
