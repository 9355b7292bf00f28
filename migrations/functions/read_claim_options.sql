-- read_claim_options(options) -> claim_terms
-- Reads and checks the options of a claim; defaults are the contract's. Raises 22023 naming the option and the cure.
create or replace function :"schema".read_claim_options(p_options jsonb)
returns :"schema".claim_terms
language plpgsql stable
as $$
declare
	t claim_terms;
	v_window jsonb := coalesce(p_options -> 'window', '{"mode": "forever"}');
	v_shadow boolean;
begin
	-- The common options in a third less time: PL/pgSQL prepares each expression anew in every transaction, so here are
	-- as few as can be. It takes only what the checks below would pass; what it does not take, they read and judge.
	if p_options - '{kind,version,window,lease_s,on_lapse,max_attempts,backoff_base_s,backoff_cap_s,caller,poll}'::text[] = '{}'
		and v_window = '{"mode": "forever"}'
	then
		t := jsonb_populate_record(
			'(,v1,forever,,,,3600,run_again,5,30,3600,{},f,"{""window"": {""mode"": ""forever""}}")'::claim_terms, p_options);
		if t.kind ~ '^[^:]+$' and t.version ~ '^[^:]+$' and t.lease_s > 0 and t.lease_s <= 31622400
			and t.on_lapse in ('run_again', 'hold') and t.max_attempts between 1 and 1000000
			and t.backoff_base_s between 0 and 31622400 and t.backoff_cap_s between 0 and 31622400 and t.poll is not null
			and jsonb_typeof(t.caller) = 'object'
			and t.caller - '{instance,workflow,workflow_name,execution,parent_execution,node,mode,run_id}'::text[] = '{}'
		then
			t.lease := make_interval(secs => t.lease_s);
			return t;
		end if;
		t := null;
	end if;

	t.kind := p_options ->> 'kind';
	t.version := coalesce(p_options ->> 'version', 'v1');
	t.window_mode := v_window ->> 'mode';
	t.window_s := (v_window ->> 'seconds')::double precision;
	t.lease_s := coalesce((p_options ->> 'lease_s')::double precision, 3600);
	t.on_lapse := coalesce(p_options ->> 'on_lapse', 'run_again');
	t.max_attempts := coalesce((p_options ->> 'max_attempts')::integer, 5);
	t.backoff_base_s := coalesce((p_options ->> 'backoff_base_s')::double precision, 30);
	t.backoff_cap_s := coalesce((p_options ->> 'backoff_cap_s')::double precision, 3600);
	t.caller := coalesce(p_options -> 'caller', '{}');
	t.poll := coalesce((p_options ->> 'poll')::boolean, false);
	v_shadow := coalesce((p_options ->> 'shadow')::boolean, false);

	-- a misspelt option must not pass as its default; "subscription" is between claim_due_works and claim_works
	if p_options - '{kind,version,window,lease_s,on_lapse,max_attempts,backoff_base_s,backoff_cap_s,caller,poll,shadow,subscription}'::text[] <> '{}' then
		raise exception 'unknown option: %', (select string_agg(k, ', ' order by k) from jsonb_object_keys(p_options) k
			where k <> all ('{kind,version,window,lease_s,on_lapse,max_attempts,backoff_base_s,backoff_cap_s,caller,poll,shadow,subscription}'))
			using errcode = '22023', hint = 'The options are listed in docs/sql.md.';
	end if;
	if t.kind is null or t.kind = '' or position(':' in t.kind) > 0 then
		raise exception 'kind must be a text without ":", not %', coalesce(quote_literal(t.kind), 'null')
			using errcode = '22023', hint = 'Name the business, for example "invoice".';
	end if;
	if t.version = '' or position(':' in t.version) > 0 then
		raise exception 'version must be a text without ":", not %', quote_literal(t.version)
			using errcode = '22023', hint = 'For example "v1".';
	end if;
	if t.window_mode is null or t.window_mode not in ('forever', 'duration', 'while_running', 'until_success') then
		raise exception 'window.mode must be forever, duration, while_running or until_success, not %', coalesce(quote_literal(t.window_mode), 'null')
			using errcode = '22023', hint = 'A newer package may know more windows: upgrade the ledger''s functions.';
	end if;
	-- "not (x > 0)" also catches NaN and null
	if t.window_mode = 'duration' and (t.window_s is null or not (t.window_s > 0 and t.window_s <= 3.2e9)) then
		raise exception 'window.seconds must be above 0 and at most 3.2e9 (100 years), not %', coalesce(t.window_s::text, 'null')
			using errcode = '22023';
	end if;
	if t.window_mode = 'until_success' then
		if coalesce(v_window ->> 'kind', '') = '' or position(':' in v_window ->> 'kind') > 0 then
			raise exception 'window.kind must name the kind whose success ends the window, not %', coalesce(quote_literal(v_window ->> 'kind'), 'null')
				using errcode = '22023';
		end if;
		-- running it again changes nothing: last_done_at survives a re-claim
		t.other_done_at := (select max(w.last_done_at) from work_log w where w.kind = v_window ->> 'kind');
	end if;
	if not (t.lease_s > 0 and t.lease_s <= 31622400) then
		raise exception 'lease_s must be above 0 and at most 31622400 (a year), not %', t.lease_s
			using errcode = '22023';
	end if;
	if t.on_lapse not in ('run_again', 'hold') then
		raise exception 'on_lapse must be run_again or hold, not %', quote_literal(t.on_lapse)
			using errcode = '22023';
	end if;
	if not (t.max_attempts between 1 and 1000000) then
		raise exception 'max_attempts must be from 1 to 1000000, not %', t.max_attempts
			using errcode = '22023';
	end if;
	if not (t.backoff_base_s >= 0 and t.backoff_cap_s >= 0 and t.backoff_base_s <= 31622400 and t.backoff_cap_s <= 31622400) then
		raise exception 'backoff_base_s and backoff_cap_s must be from 0 to 31622400, not % and %', t.backoff_base_s, t.backoff_cap_s
			using errcode = '22023';
	end if;
	if jsonb_typeof(t.caller) <> 'object' then
		raise exception 'caller must be an object' using errcode = '22023';
	end if;
	if t.caller - '{instance,workflow,workflow_name,execution,parent_execution,node,mode,run_id}'::text[] <> '{}' then
		raise exception 'unknown field of caller in %', t.caller using errcode = '22023';
	end if;
	if v_window - '{mode,seconds,kind}'::text[] <> '{}' then
		raise exception 'unknown field of window in %', v_window using errcode = '22023';
	end if;

	t.lease := make_interval(secs => t.lease_s);
	t.checked := jsonb_build_object('window', v_window);
	-- said in every row of the decision log; claim_terms is frozen, so this is where the functions read it, too
	if v_shadow then
		t.checked := t.checked || '{"shadow": true}';
	end if;
	return t;
end
$$;
