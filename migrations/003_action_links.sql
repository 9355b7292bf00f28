-- Action links: each does one thing to one work, once. Run like 001_ledger.sql.

create table :"schema".action_links (
	-- sha256 of the nonce, hex: who reads this table can use no link
	nonce_hash text collate "C" not null,
	work_id text collate "C" not null,
	-- replay, landed, not_landed
	action text not null,
	-- landed: the reference, unless who uses the link gives another
	external_ref text,

	-- the episode: how the work stood when the link was made. A link of an earlier episode is overtaken. claimed_at tells
	-- episodes apart that have no token, because a replay clears it.
	state text not null,
	generation integer not null,
	attempt integer not null,
	token uuid,
	claimed_at timestamptz not null,

	created_at timestamptz not null,
	created_by jsonb,
	expires_at timestamptz not null,
	used_at timestamptz,
	used_by jsonb,
	-- of the call that used it: sent again, it is answered with its first answer
	used_token uuid,
	-- how the work stood then
	outcome jsonb,

	constraint action_links_pkey primary key (nonce_hash),
	constraint action_link_makes_sense check (
		octet_length(nonce_hash) = 64 and nonce_hash = lower(nonce_hash)
		and action in ('replay', 'landed', 'not_landed')
		and (used_at is null) = (used_token is null)
	)
);

-- For the purge of old links. Expiry times grow, so inserts go to its right edge.
create index action_links_expiry on :"schema".action_links (expires_at);

revoke all on :"schema".action_links from public;
