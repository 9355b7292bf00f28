-- link_overtaken(link, work) -> what happened to the work since the link was made; null: it is still the same episode
create or replace function :"schema".link_overtaken(l :"schema".action_links, w :"schema".work_log)
returns text
language sql stable
as $$
	select case
		when w.work_id is null then 'the ledger holds no such work any more (it was released, purged or forgotten)'
		when (w.state, w.generation, w.attempt, w.claimed_at) = (l.state, l.generation, l.attempt, l.claimed_at)
			and w.token is not distinct from l.token then null
		when w.state = 'done' then 'it was done at ' || utc(w.completed_at)
			|| case when w.settled_by = 'person' then ', as a person said' else coalesce(' by execution ' || w.execution, '') end
			|| coalesce(' (reference ' || w.external_ref || ')', '')
		when w.token is null and w.settled_by = 'person'
			then 'a person made it due again at ' || utc(w.updated_at)
		when w.claimed_at <> l.claimed_at then 'it was claimed anew at ' || utc(w.claimed_at) || coalesce(' by execution ' || w.execution, '')
			|| ' and is ' || w.state || case when w.state = 'running' then '' else ' again' end
		else 'its owner has reported since: it is ' || w.state || ' now'
	end
$$;
