-- checkpoint_report(checkpoint) -> everything about a checkpoint as one json. The cursor is text: numbers may be long.
create or replace function :"schema".checkpoint_report(c :"schema".checkpoints)
returns json
language sql stable
as $$
	select json_build_object(
		'checkpointId', checkpoint_id(c.name, c.run_id), 'name', c.name, 'runId', c.run_id,
		'compare', c.compare, 'cursor', c.cursor_text,
		'createdAt', utc(c.created_at), 'savedAt', utc(c.saved_at), 'savedBy', c.saved_by
	)
$$;
