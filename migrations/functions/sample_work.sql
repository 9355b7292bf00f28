-- sample_work(event, states, kinds) -> json: the newest work that a subscription would be told of, or null
-- For a look at the shape: nothing is reserved or changed. event: dead_letter (of these states), or retry_due (the next
-- to be due, also if it is not due yet). kinds null: all.
create or replace function :"schema".sample_work(p_event text, p_states text[], p_kinds text[])
returns json
language plpgsql stable security definer
set search_path = :"schema", pg_temp
set enable_seqscan = off
as $$
begin
	if p_event = 'dead_letter' then
		return (
			select work_report(w) from work_log w
			where w.state in ('dead', 'held') and not w.stub
				and w.state = any(p_states) and (p_kinds is null or w.kind = any(p_kinds))
			order by w.updated_at desc
			limit 1
		);
	elsif p_event = 'retry_due' then
		return (
			select work_report(w) from work_log w
			where w.state = 'failed' and w.payload is not null and not w.stub and w.window_mode <> 'while_running'
				and (w.kind = any(p_kinds) or (p_kinds is null and w.kind not like '% (manual test)'))
			order by w.next_attempt_at
			limit 1
		);
	end if;
	raise exception 'event must be dead_letter or retry_due, not %', coalesce(quote_literal(p_event), 'null')
		using errcode = '22023';
end
$$;
