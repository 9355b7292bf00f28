-- oldest_waiting(kind, limit) -> json [{…}, …]: works that wait for somebody to go on with them, the oldest beginning first
-- Failed ones, due or not, and running ones whose lease ended without a report. Held and dead works wait for a person: list
-- them. Without payload and result: who counts works need not see them. kind null: all.
create or replace function :"schema".oldest_waiting(p_kind text, p_limit integer)
returns json
language plpgsql stable security definer
set search_path = :"schema", pg_temp
as $$
begin
	return coalesce((
		select json_agg(json_build_object(
			'workId', s.work_id, 'kind', s.kind, 'version', s.version, 'key', s.key, 'state', s.state,
			'lapsed', s.state = 'running', 'attempt', s.attempt, 'maxAttempts', s.max_attempts,
			'firstStartedAt', utc(s.first_started_at), 'updatedAt', utc(s.updated_at),
			'lockedUntil', case when s.state = 'running' then utc(s.locked_until) end,
			'nextAttemptAt', utc(s.next_attempt_at), 'due', s.state = 'running' or s.next_attempt_at <= clock_timestamp(),
			'waitsForDelivery', s.state = 'failed' and s.payload is null,
			'outcomeKnown', s.outcome_known, 'lastError', s.last_error) order by s.first_started_at, s.work_id)
		from (
			select w.* from work_log w
			where (w.state = 'failed' or (w.state = 'running' and w.locked_until <= clock_timestamp()))
				and (p_kind is null or w.kind = p_kind)
			order by w.first_started_at, w.work_id
			limit greatest(1, least(coalesce(p_limit, 10), 100))
		) s), '[]');
end
$$;
