-- Messages that go out once. Run once, like 001_ledger.sql.

create table :"schema".sent_messages (
	-- sha256("message:v1:" + bot + ":" + chat_id + ":" + message_key), hex. collate "C": locked in this order.
	message_ref text collate "C" not null,
	-- who sends: the digits before the ":" of the bot's token, so that a new token is the same bot
	bot text not null,
	-- where it goes, in its newest form: a group that became a supergroup has only its new id here
	chat_id text not null,
	-- what it says: sha256 of everything the reader sees, or of a key of the caller's own
	message_key text not null,

	state text not null,
	-- counts how often it was sent anew after its window; attempts count within a generation
	generation integer not null default 1,
	attempt integer not null default 1,
	-- the fence: a fresh UUID per reservation
	token uuid,
	locked_until timestamptz,
	retry_at timestamptz,
	-- an earlier attempt at the present part may have arrived: it never becomes "not sent" again without a person
	doubt boolean not null default false,

	-- what is sent; under an own key two deliveries may differ in it
	content_hash text not null,
	-- one per part, in order. Parts go out in order, so message_ids says which are out.
	part_hashes text[] not null,
	-- null: a person said that it arrived, and not under which id
	message_ids bigint[] not null default '{}',
	kind text,
	-- readable, for people; null where the caller keeps texts out of the ledger
	preview text,
	last_error text,

	window_s double precision,
	owner jsonb,
	created_at timestamptz not null,
	updated_at timestamptz not null,
	-- when a request was last begun
	sending_at timestamptz,
	sent_at timestamptz,
	-- when it may be forgotten; null: never
	expires_at timestamptz,

	constraint sent_messages_pkey primary key (message_ref),
	constraint message_makes_sense check (
		cardinality(part_hashes) >= 1 and cardinality(message_ids) <= cardinality(part_hashes)
		and case state
			when 'reserved' then token is not null and locked_until is not null
			when 'sending' then token is not null and locked_until is not null and sending_at is not null
			when 'sent' then sent_at is not null and cardinality(message_ids) = cardinality(part_hashes)
			when 'unknown' then sending_at is not null
			else state in ('not_sent', 'refused') and not doubt
		end
	)
);

-- For the sweep: only what is open is in it.
create index sent_messages_open on :"schema".sent_messages (locked_until) where state in ('reserved', 'sending');
-- For the list and the announcements of what a person must look at.
create index sent_messages_unknown on :"schema".sent_messages (updated_at) where state = 'unknown';
-- For forgetting: times grow, so entries go to its right edge.
create index sent_messages_expiry on :"schema".sent_messages (expires_at) where expires_at is not null;

-- One row per chat of a bot: the lock that a migration and a flood limit take, and what they leave behind.
create table :"schema".message_chats (
	bot text not null,
	chat_id text collate "C" not null,
	-- the supergroup that this group became
	moved_to text,
	-- Telegram said 429: nothing goes to this chat before
	blocked_until timestamptz,
	constraint message_chats_pkey primary key (bot, chat_id)
);

-- One row per bot, so that several workers together stay below its overall limit.
create table :"schema".message_pacing (
	bot text not null,
	-- the next message's turn
	free_at timestamptz not null,
	blocked_until timestamptz,
	constraint message_pacing_pkey primary key (bot)
);

-- Replies. Frozen: a new shape is a new name; what comes later goes into "more".
create type :"schema".message_answer as (
	ord integer,
	message_ref text,
	chat_id text,
	status text,
	state text,
	generation integer,
	attempt integer,
	locked_until timestamptz,
	-- when to come back, where the status is one of waiting
	retry_at timestamptz,
	message_ids bigint[],
	part_count integer,
	sent_at timestamptz,
	last_error text,
	more jsonb
);

revoke all on :"schema".sent_messages, :"schema".message_chats, :"schema".message_pacing from public;
