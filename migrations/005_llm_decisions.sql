-- Decisions of language models: asked once, stored, by choice approved, then applied as often as it takes.
-- Run once, in one transaction, by the package or by hand, as 001_ledger.sql.

create table :"schema".llm_decisions (
	-- sha256 over everything that influences the answer, hex. collate "C": multi-row functions lock in this order.
	decision_key text collate "C" not null,
	-- what is decided, in a word: part of the key
	kind text not null,
	-- what the key was made of, readable and bounded, so that two decisions can be compared
	parts json,

	state text not null,
	-- counts how often the question was opened anew (expired); attempts count the deciders within a generation
	generation integer not null default 1,
	attempt integer not null default 0,
	-- the fence of the one who decides; it stays with what it stored
	token uuid,
	-- earlier deciders of this generation whose lease lapsed, newest last: first stored wins, also when they come late
	past_tokens uuid[] not null default '{}',
	locked_until timestamptz,
	-- asked for by a look-up: what is stored under it is a proposal
	needs_approval boolean not null default false,

	-- json, not jsonb: what was approved is applied byte for byte
	value json,
	-- sha256 of the value's text when it was stored: what was changed since is not handed out
	value_hash text,
	-- what the model said, word for word, as a JSON text: text refuses NUL
	raw json,
	-- of the last answer that was not stored, or of the verdict
	reason text,

	input_tokens bigint,
	output_tokens bigint,
	cost numeric,
	latency_ms double precision,

	-- who decides (deciding), or whose answer is stored
	instance text,
	workflow text,
	workflow_name text,
	execution text,
	parent_execution text,
	node text,
	mode text,

	approver text,
	judged_at timestamptz,

	created_at timestamptz not null,
	updated_at timestamptz not null,
	claimed_at timestamptz,
	decided_at timestamptz,
	-- null: never
	expires_at timestamptz,

	constraint llm_decisions_pkey primary key (decision_key),
	constraint decision_makes_sense check (
		-- capitals would be a second key of the same question
		octet_length(decision_key) = 64 and decision_key = lower(decision_key)
		and cardinality(past_tokens) <= 100
		and case state
			-- nobody decides and nothing is stored: the last answer was refused, or a person expired it
			when 'open' then value is null and locked_until is null
			when 'deciding' then value is null and token is not null and locked_until is not null
			when 'stored' then value is not null and value_hash is not null and decided_at is not null
			when 'proposed' then value is not null and value_hash is not null and decided_at is not null
			when 'approved' then value is not null and value_hash is not null and approver is not null and judged_at is not null
			when 'rejected' then value is not null and value_hash is not null and approver is not null and judged_at is not null
			else false
		end
	)
);

-- The look for an execution's open look-ups; only questions under decision are in it.
create index llm_decisions_deciding on :"schema".llm_decisions (execution) where state = 'deciding';

-- Replies. Frozen: a new shape is a new name; what comes later goes into "more".
create type :"schema".decision_answer as (
	ord integer,
	decision_key text,
	outcome text,
	state text,
	generation integer,
	attempt integer,
	token uuid,
	locked_until timestamptz,
	value json,
	value_hash text,
	reason text,
	decided_at timestamptz,
	expires_at timestamptz,
	owner jsonb,
	approver text,
	judged_at timestamptz,
	more jsonb
);

revoke all on :"schema".llm_decisions from public;
