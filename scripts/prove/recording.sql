-- The prove's own witness, in its database only: every change of a work as the table saw it, whoever made it and whatever
-- the ledger's functions wrote about it. Its numbers come from the decision log's sequence, so that changes and decisions
-- of one work stand in one order; the transaction that wrote a row is its xmin, in both tables.
create schema prove;

create table prove.change_log (
	seq bigint not null,
	at timestamptz not null,
	work_id text collate "C" not null,
	kind text not null,
	gone boolean not null,
	state text not null,
	generation integer not null,
	attempt integer not null,
	max_attempts integer not null,
	on_lapse text not null,
	token uuid,
	locked_until timestamptz,
	next_attempt_at timestamptz,
	completed_at timestamptz,
	result text,
	result_hash text,
	external_ref text,
	stub boolean not null
);

create function prove.record_change()
returns trigger
language plpgsql
as $$
declare
	w idempotency.work_log := case when tg_op = 'DELETE' then old else new end;
begin
	if tg_op = 'UPDATE' and (
		old.state, old.generation, old.attempt, old.max_attempts, old.on_lapse, old.token, old.locked_until,
		old.next_attempt_at, old.completed_at, old.result::text, old.result_hash, old.external_ref, old.stub
	) is not distinct from (
		new.state, new.generation, new.attempt, new.max_attempts, new.on_lapse, new.token, new.locked_until,
		new.next_attempt_at, new.completed_at, new.result::text, new.result_hash, new.external_ref, new.stub
	) then
		return null;
	end if;
	insert into prove.change_log values (
		nextval('idempotency.decision_log_id_seq'), clock_timestamp(), w.work_id, w.kind, tg_op = 'DELETE', w.state,
		w.generation, w.attempt, w.max_attempts, w.on_lapse, w.token, w.locked_until, w.next_attempt_at, w.completed_at,
		w.result::text, w.result_hash, w.external_ref, w.stub
	);
	return null;
end
$$;

create trigger prove_record_change after insert or update or delete on idempotency.work_log
	for each row execute function prove.record_change();
