-- The ledger's tables. Run once, in one transaction, by the package or by hand:
--   psql -v schema=idempotency -v ON_ERROR_STOP=1 -1 -f 001_ledger.sql
-- :"schema" is psql's own spelling of a quoted identifier; the package replaces it the same way.

create table :"schema".work_log (
	-- sha256(kind + ":" + version + ":" + key), hex. collate "C": every multi-row function locks in this order.
	work_id text collate "C" not null,
	kind text not null,
	version text not null,
	-- readable, for people; the first 1,000 code points
	key text,

	state text not null,
	-- counts how often finished work was begun anew; attempts count within a generation
	generation integer not null default 1,
	attempt integer not null default 1,
	-- the fence: a fresh UUID per claim. It stays when the work is settled, so that its owner can still report.
	token uuid,
	locked_until timestamptz,
	next_attempt_at timestamptz,

	-- the policy stored at claim: a sweep must settle a lapse as the claimant wished
	window_mode text not null default 'forever',
	lease_s double precision not null default 3600,
	on_lapse text not null default 'run_again',
	max_attempts integer not null default 5,
	backoff_base_s double precision not null default 30,
	backoff_cap_s double precision not null default 3600,

	-- json, not jsonb: jsonb reorders keys, changes numbers and refuses NUL
	payload json,
	match jsonb,
	result json,
	result_hash text,
	external_ref text,
	decision_key text,
	last_error text,
	-- false: the effect of the attempt before (running) or of the last one (failed, held, dead) may have landed
	outcome_known boolean not null default true,
	-- who moved it out of running: owner, lapse, execution, reference, person
	settled_by text,
	-- purged down to what "forever" needs: state, token, reference, result hash
	stub boolean not null default false,
	-- the row as it was before the present claim, so that a release can undo it; null for a first claim
	prior jsonb,
	prior_result json,

	instance text,
	workflow text,
	workflow_name text,
	execution text,
	parent_execution text,
	node text,
	mode text,
	run_id text,

	created_at timestamptz not null,
	updated_at timestamptz not null,
	first_started_at timestamptz not null,
	claimed_at timestamptz not null,
	completed_at timestamptz,
	-- survives re-claims and purge
	last_done_at timestamptz,

	constraint work_log_pkey primary key (work_id),
	-- one constraint: every statement parses each of them anew, which cost a tenth of a claim
	constraint work_makes_sense check (
		-- capitals would be a second identity of the same work
		octet_length(work_id) = 64 and work_id = lower(work_id)
		and (match is null or jsonb_typeof(match) = 'object')
		and case state
			when 'running' then token is not null and locked_until is not null
			when 'failed' then next_attempt_at is not null
			when 'done' then completed_at is not null
			else state in ('dead', 'held')
		end
	)
);

-- One partial index serves the sweep and the look for an execution's open claims: lease ends grow with time, so
-- inserts go to its right edge, and only running work is in it.
create index work_log_running on :"schema".work_log (locked_until) where state = 'running';

-- "Until the next success of another kind" asks for a kind's newest success, reconciliation for a kind's successes in a
-- time range. Times grow, so a kind's entries go to its right edge.
create index work_log_kind_done on :"schema".work_log (kind, last_done_at) where last_done_at is not null;

-- Append-only. One row per thing decided, written in the transaction that decides it.
create table :"schema".decision_log (
	-- bigint: a failed ON CONFLICT burns a value, and int4 runs out
	id bigint generated always as identity,
	at timestamptz not null default clock_timestamp(),
	work_id text collate "C" not null,
	-- what was asked: claim, complete, fail, fail_execution, record_reference, extend, release
	event text not null,
	-- what was decided: claimed, duplicate, in_progress, completed, not_owner, …
	outcome text not null,
	generation integer,
	attempt integer,
	token uuid,
	-- who asked
	fired jsonb,
	-- what was looked at: the window, the state and times found
	checked jsonb,
	-- anything else worth knowing of this decision
	detail jsonb,
	-- what this decision created, moved out of the work, or refused
	result json,
	external_ref text
);

-- A hash index: only equality is asked of it (one work's history), and it costs a claim less than a b-tree of 64 digits.
create index decision_log_work on :"schema".decision_log using hash (work_id);
-- Rows come in time order, so this stays tiny; retention goes by age.
create index decision_log_at on :"schema".decision_log using brin (at);

-- Replies. Frozen: a new shape is a new name; what comes later goes into "more".
create type :"schema".claim_answer as (
	ord integer,
	work_id text,
	status text,
	state text,
	generation integer,
	attempt integer,
	token uuid,
	locked_until timestamptz,
	next_attempt_at timestamptz,
	previous_outcome text,
	last_error text,
	result json,
	external_ref text,
	completed_at timestamptz,
	owner jsonb,
	more jsonb
);

create type :"schema".hold_answer as (
	ord integer,
	work_id text,
	status text,
	state text,
	generation integer,
	attempt integer,
	locked_until timestamptz,
	next_attempt_at timestamptz,
	result json,
	external_ref text,
	completed_at timestamptz,
	last_error text,
	more jsonb
);

-- The options of a claim, read and checked once per call.
create type :"schema".claim_terms as (
	kind text,
	version text,
	window_mode text,
	window_s double precision,
	-- until_success: when the other kind last succeeded, ever
	other_done_at timestamptz,
	lease interval,
	lease_s double precision,
	on_lapse text,
	max_attempts integer,
	backoff_base_s double precision,
	backoff_cap_s double precision,
	caller jsonb,
	poll boolean,
	checked jsonb
);

-- What is installed. contract: the functions' number; a package replaces them only with a higher one.
create table :"schema".ledger_version (
	one boolean primary key default true check (one),
	schema_version integer not null,
	contract integer not null,
	package_version text not null,
	updated_at timestamptz not null default clock_timestamp()
);

revoke all on :"schema".ledger_version, :"schema".work_log, :"schema".decision_log from public;
