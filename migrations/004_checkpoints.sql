-- Checkpoints: how far a run has come, kept outside the run. Run like 001_ledger.sql.

create table :"schema".checkpoints (
	name text collate "C" not null,
	-- '': one cursor for all runs
	run_id text collate "C" not null default '',
	-- number, time or text: how two cursors are compared. It stays until the checkpoint is reset.
	compare text not null,
	-- a time as UTC text; everything else as it was given
	cursor_text text collate "C" not null,
	-- what number and time are compared by, without loss (nanoseconds are no timestamptz); null for text
	rank numeric,
	-- tokens of the newest saves: a call sent again, its answer lost, must neither go back nor be called older
	recent uuid[] not null default '{}',
	created_at timestamptz not null,
	saved_at timestamptz not null,
	saved_by jsonb,

	constraint checkpoints_pkey primary key (name, run_id),
	constraint checkpoint_makes_sense check (
		name <> '' and char_length(name) <= 200 and char_length(run_id) <= 200
		and compare in ('number', 'time', 'text') and (rank is null) = (compare = 'text')
	)
);

revoke all on :"schema".checkpoints from public;
