-- What subscriptions (Work Ledger Trigger) need: who was told of which dead letter, and the works they look for.
-- Run once, after 001, in one transaction.

-- One row per subscription and subject: a new episode of the same subject takes the row over, so the table cannot grow
-- beyond what is dead or was; clear_announcements removes what is over.
create table :"schema".announcements (
	subscription text collate "C" not null,
	-- what subject_id names: 'work'. What else is announced one day gets a word of its own.
	subject text collate "C" not null,
	subject_id text collate "C" not null,
	-- one death of the subject; another one is news
	episode text not null,
	state text not null,
	-- how often this episode was handed out
	attempt integer not null,
	-- of the last hand-out, fresh each time: who reports under an older one reports in vain
	token uuid not null,
	locked_until timestamptz,
	next_attempt_at timestamptz,
	last_error text,
	announced_at timestamptz not null,
	updated_at timestamptz not null,
	constraint announcements_pkey primary key (subscription, subject, subject_id),
	constraint announcement_makes_sense check (
		case state
			when 'handed_out' then locked_until is not null
			when 'waiting' then next_attempt_at is not null
			else state in ('acknowledged', 'given_up')
		end
	)
);

-- What executions hold now; few rows at any time.
create index announcements_open on :"schema".announcements (subscription, locked_until) where state = 'handed_out';

-- Both are partial: finished work, the mass, is in neither.
create index work_log_due on :"schema".work_log (next_attempt_at) where state = 'failed';
create index work_log_dead on :"schema".work_log (updated_at) where state in ('dead', 'held') and not stub;

revoke all on :"schema".announcements from public;
