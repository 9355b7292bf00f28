-- link_standing(link, work) -> whether a link can be used now, and if not, why: status and reason
-- usable, unknown, used, expired, overtaken or refused, in this order. The caller holds both rows, or only looks.
create or replace function :"schema".link_standing(
	l :"schema".action_links, w :"schema".work_log, out status text, out reason text
)
language plpgsql stable
as $$
declare
	v_overtaken text := link_overtaken(l, w);
	v_refusal text := case when l.action = 'replay' then replay_refusal(w, false, false) else resolve_refusal(w) end;
begin
	if l.nonce_hash is null then
		status := 'unknown';
		reason := 'it is not known (mistyped, or so old that it was purged)';
	elsif l.used_at is not null then
		status := 'used';
		reason := 'it was used at ' || utc(l.used_at)
			|| coalesce(' by ' || coalesce(l.used_by ->> 'by', 'execution ' || (l.used_by ->> 'execution')), '')
			|| case l.action when 'replay' then ': the work was replayed' when 'landed' then ': the work was resolved as landed'
				else ': the work was resolved as not landed' end;
	elsif l.expires_at <= clock_timestamp() then
		status := 'expired';
		reason := 'it expired at ' || utc(l.expires_at);
	elsif v_overtaken is not null then
		status := 'overtaken';
		reason := v_overtaken;
	elsif v_refusal is not null then
		status := 'refused';
		reason := v_refusal;
	else
		status := 'usable';
	end if;
end
$$;
