-- A publication for all tables (change capture, logical replication) lets no row of a table without a key be deleted, and the
-- log has none: its retention would fail. Old rows go into the WAL only under wal_level = logical.
-- Run once, in one transaction, by the package or by hand, as 001_ledger.sql.

alter table :"schema".decision_log replica identity full;
