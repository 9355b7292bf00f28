-- get_decision(key) -> json: one decision with what its key was made of, its value and what the model said
-- null: the ledger holds no such decision (any more). Its history: explain_work(key, limit).
create or replace function :"schema".get_decision(p_key text)
returns json
language sql stable security definer
set search_path = :"schema", pg_temp
as $$
	select decision_report(d, true) from llm_decisions d where d.decision_key = p_key
$$;
