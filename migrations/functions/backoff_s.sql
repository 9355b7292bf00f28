-- backoff_s(work) -> seconds until the next attempt: exponential with full jitter
-- (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/)
create or replace function :"schema".backoff_s(w :"schema".work_log)
returns double precision
language sql volatile
as $$
	select random() * least(w.backoff_cap_s, w.backoff_base_s * power(2, least(w.attempt - 1, 60)))
$$;
