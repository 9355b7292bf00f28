-- clear_announcements(after_subscription, after_id, limit) -> json {"removed": n, "after": [subscription, id] or null}
-- Looks at one page of announcements of works, whoever's, in the order of their key, and removes those whose work is done,
-- purged or gone. after: where the next page begins; null at the end.
create or replace function :"schema".clear_announcements(p_after_subscription text, p_after_id text, p_limit integer)
returns json
language plpgsql security definer
set search_path = :"schema", pg_temp
set lock_timeout = '10s'
set enable_seqscan = off
as $$
declare
	v_limit integer := greatest(1, least(coalesce(p_limit, 500), 5000));
	v_subscriptions text[];
	v_ids text[];
	v_removed integer;
begin
	select array_agg(p.subscription order by p.subscription, p.subject_id),
		array_agg(p.subject_id order by p.subscription, p.subject_id)
	into v_subscriptions, v_ids
	from (
		select n.subscription, n.subject_id
		from announcements n
		where n.subject = 'work' and (n.subscription, n.subject, n.subject_id)
			> (coalesce(p_after_subscription, ''), 'work', coalesce(p_after_id, ''))
		order by n.subscription, n.subject, n.subject_id
		limit v_limit
	) p;
	with over as materialized (
		select n.subscription, n.subject_id
		from unnest(v_subscriptions, v_ids) as p(subscription, subject_id)
		join announcements n on n.subscription = p.subscription and n.subject = 'work' and n.subject_id = p.subject_id
		where n.state <> 'handed_out'
			-- one that was handed out since this statement began is not over
			and n.updated_at < clock_timestamp() - interval '1 minute'
			and not exists (
				select 1 from work_log w where w.work_id = n.subject_id and w.state <> 'done' and not w.stub)
		order by n.subscription, n.subject_id
		for update of n skip locked
	), removed as (
		delete from announcements n using over o
		where n.subscription = o.subscription and n.subject = 'work' and n.subject_id = o.subject_id
		returning 1
	)
	select count(*) into v_removed from removed;
	return json_build_object('removed', v_removed, 'after', case when cardinality(v_ids) = v_limit
		then json_build_array(v_subscriptions[v_limit], v_ids[v_limit]) end);
end
$$;
