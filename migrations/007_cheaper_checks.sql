-- The check on works, down to what nothing may ever break (facts S3): running work has a token and a lease end, failed work
-- a next attempt time. PostgreSQL parses and plans a check anew in every statement; the longer one was a sixth of what the
-- server spends on a claim and on a completion. What it said of a work's id and match, the claim functions ask themselves.
-- Run once, in one transaction, by the package or by hand, as 001_ledger.sql.

alter table :"schema".work_log drop constraint work_makes_sense;
-- not valid: the one before held for every row, so none has to be looked at under the lock
alter table :"schema".work_log add constraint work_makes_sense check (
	(state <> 'running' or (token is not null and locked_until is not null))
	and (state <> 'failed' or next_attempt_at is not null)
) not valid;
