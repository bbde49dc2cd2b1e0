-- All tables of gavel. Times are microseconds since the epoch (UTC); ids are UUIDv7 as text; JSON is text. What stands
-- between `-- sqlite:` or `-- postgres:` and `-- both:` is for that database alone. On PostgreSQL TEXT compares by its
-- bytes (COLLATE "C"), as in SQLite, so that order, prefixes and pages are the same. Words with an at sign are those of
-- `Dialect::text` in gavel-store.

-- A running process. Open rows of an owner without a living lease are finished by recovery. `url`: where it serves, for
-- commands over the same SQLite database; NULL for a command, and on PostgreSQL.
CREATE TABLE instance (
    id TEXT NOT NULL PRIMARY KEY,
    started_at BIGINT NOT NULL,
    lease_until BIGINT NOT NULL,
    url TEXT
);

-- One row for each request that parsed. `open` between commit 1 (before the first effect) and commit 2.
-- `requested_model` was asked, `model` answered, and `service_tier` is the tier that served. `turns` has each model call
-- as JSON: numbers and names, no content; so has `limits_reached` each limit. `cost_nano`: in billionths of a US dollar, NULL if that of a model call is not
-- known. Of `duration_us`, what is not `human_us`, `model_us` and `tool_us` is gavel's own.
CREATE TABLE decision_log (
    id TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    surface TEXT NOT NULL,
    user_id TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    message TEXT,
    definition_hash TEXT NOT NULL,
    requested_model TEXT NOT NULL,
    agent_id TEXT,
    time_zone TEXT,
    tools_subset TEXT,
    history_entries BIGINT NOT NULL,
    toolset_hash TEXT,
    history_hash TEXT,
    trace_id TEXT,
    request_id TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    owner TEXT NOT NULL,
    status TEXT NOT NULL,
    recovered BOOLEAN NOT NULL DEFAULT FALSE,
    decision_type TEXT,
    outcome_category TEXT,
    intent TEXT,
    response TEXT,
    model TEXT,
    service_tier TEXT,
    iterations BIGINT,
    finish_reason TEXT,
    attempts BIGINT,
    turns TEXT,
    limits_reached TEXT,
    input_tokens BIGINT,
    output_tokens BIGINT,
    thought_tokens BIGINT,
    cached_tokens BIGINT,
    cost_nano BIGINT,
    price_id TEXT,
    duration_us BIGINT,
    human_us BIGINT,
    model_us BIGINT,
    tool_us BIGINT,
    closed_at BIGINT,
    error_detail TEXT,
    CONSTRAINT decision_status CHECK (status = 'open' OR status = 'closed'),
    CONSTRAINT decision_type_known CHECK (
        decision_type = 'REFUSE' OR decision_type = 'REQUEST_CLARIFICATION'
        OR decision_type = 'INVOKE_TOOL' OR decision_type = 'RESPOND_ONLY'),
    -- An open row claims no outcome; a closed one has it whole.
    CONSTRAINT decision_open_has_no_outcome CHECK (
        status = 'closed' OR (decision_type IS NULL AND outcome_category IS NULL AND recovered = FALSE)),
    CONSTRAINT decision_closed_has_outcome CHECK (
        status = 'open' OR (decision_type IS NOT NULL AND outcome_category IS NOT NULL AND intent IS NOT NULL)),
    -- What recovery closed is never shown as done; only it knows no duration.
    CONSTRAINT decision_recovered_is_error CHECK (recovered = FALSE OR outcome_category = 'ERROR:INTERNAL'),
    CONSTRAINT decision_duration CHECK (
        status = 'open' OR recovered OR (duration_us IS NOT NULL AND duration_us >= 0))
);

CREATE INDEX decision_by_time ON decision_log (tenant, created_at, id);
-- postgres:
-- For the analysts' views, which have the same expression.
CREATE INDEX decision_by_instant ON decision_log (tenant, to_timestamp(created_at / 1000000.0::float8));
-- both:
CREATE INDEX decision_by_user ON decision_log (tenant, user_id, created_at, id);
CREATE INDEX decision_by_conversation ON decision_log (tenant, conversation_id, created_at, id);
CREATE INDEX decision_by_outcome ON decision_log (tenant, outcome_category, created_at, id);
CREATE INDEX decision_by_intent ON decision_log (tenant, intent, created_at, id);
CREATE INDEX decision_by_type ON decision_log (tenant, decision_type, created_at, id);
-- Holds the few rows that are open now: recovery and `status = "open"` read nothing else.
CREATE INDEX decision_open ON decision_log (tenant, created_at, id, owner) WHERE status = 'open';
-- What took a second or more, by classes that double: `duration_ms > N` reads a page of each class from N on. What was
-- quicker is not in here and costs nothing.
CREATE INDEX decision_slow ON decision_log (tenant, (CASE WHEN duration_us < 2000000 THEN 1 WHEN duration_us < 4000000
    THEN 2 WHEN duration_us < 8000000 THEN 4 WHEN duration_us < 16000000 THEN 8 WHEN duration_us < 32000000 THEN 16 ELSE 32
    END), created_at, id) WHERE duration_us >= 1000000;

-- The texts that decisions were made with, each once for a user: `definition` in its canonical form, `toolset` as it
-- was declared (with what was missing), `message` of an earlier conversation, and `history`, a JSON list of role and hash
-- of each message. `user_id`: whose words they are, empty for definitions and toolsets. `hash`: hex SHA-256 of the text,
-- of a message a keyed hash where content is hashed. `body` is NULL where content is not kept. `last_seen_day`: the day
-- that it was last used on, counted from 1970.
CREATE TABLE content_blob (
    tenant TEXT NOT NULL,
    user_id TEXT NOT NULL,
    hash TEXT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT,
    bytes BIGINT NOT NULL,
    first_seen BIGINT NOT NULL,
    last_seen_day BIGINT NOT NULL,
    PRIMARY KEY (tenant, user_id, hash),
    CONSTRAINT blob_kind CHECK (kind = 'definition' OR kind = 'toolset' OR kind = 'message' OR kind = 'history')
);

-- For retention.
CREATE INDEX content_blob_by_day ON content_blob (last_seen_day);

-- One row for each call the model proposed. No foreign key: the writer puts a decision and its calls into one
-- transaction, and an intent takes its user from the decision row, so it cannot exist without one. `input_hash`: hex
-- SHA-256 of the arguments, a keyed hash where content is hashed, NULL where none is kept. Bytes are those of the texts as
-- they were, kept or not. `policy` and `decided_by`:
-- what the gate decided, and by what; NULL where a call was over before it was judged. `lost`: what else matched, as JSON:
-- names alone. `turn`: the model call that asked for it, counted from 1.
CREATE TABLE tool_invocation_log (
    decision_id TEXT NOT NULL,
    sequence BIGINT NOT NULL,
    id TEXT NOT NULL,
    turn BIGINT,
    tenant TEXT NOT NULL,
    user_id TEXT NOT NULL,
    tool TEXT NOT NULL,
    server TEXT,
    tool_digest TEXT,
    side_effect BOOLEAN NOT NULL,
    words TEXT,
    arguments TEXT,
    argument_bytes BIGINT NOT NULL,
    input_hash TEXT,
    policy TEXT,
    decided_by TEXT,
    lost TEXT,
    idempotency_key TEXT,
    status TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    started_at BIGINT,
    duration_us BIGINT,
    result TEXT,
    result_bytes BIGINT,
    error_code TEXT,
    error_message TEXT,
    PRIMARY KEY (decision_id, sequence),
    CONSTRAINT tool_status CHECK (
        status = 'started' OR status = 'completed' OR status = 'failed' OR status = 'in_doubt' OR status = 'not_sent'),
    CONSTRAINT tool_policy CHECK (policy = 'allow' OR policy = 'require_approval' OR policy = 'deny'),
    CONSTRAINT tool_sent_has_start CHECK ((status = 'not_sent') = (started_at IS NULL)),
    CONSTRAINT tool_failure_has_code CHECK (
        (status = 'started' OR status = 'completed') = (error_code IS NULL)),
    CONSTRAINT tool_result_only_when_completed CHECK (result IS NULL OR status = 'completed'),
    CONSTRAINT tool_duration CHECK (duration_us IS NULL OR duration_us >= 0)
);

CREATE INDEX tool_by_time ON tool_invocation_log (tenant, created_at, id);
-- postgres:
CREATE INDEX tool_by_instant ON tool_invocation_log (tenant, to_timestamp(created_at / 1000000.0::float8));
-- both:
CREATE INDEX tool_by_tool ON tool_invocation_log (tenant, tool, created_at, id);
CREATE INDEX tool_by_user ON tool_invocation_log (tenant, user_id, created_at, id);
-- What did not complete is rare and asked for often.
CREATE INDEX tool_unsuccessful ON tool_invocation_log (tenant, created_at, id) WHERE status <> 'completed';
CREATE INDEX tool_started ON tool_invocation_log (decision_id) WHERE status = 'started';
CREATE INDEX tool_slow ON tool_invocation_log (tenant, (CASE WHEN duration_us < 2000000 THEN 1 WHEN duration_us < 4000000
    THEN 2 WHEN duration_us < 8000000 THEN 4 WHEN duration_us < 16000000 THEN 8 WHEN duration_us < 32000000 THEN 16 ELSE 32
    END), created_at, id) WHERE duration_us >= 1000000;

-- Statistics: decisions and calls by quarters of an hour (`quarter`: counted from 1970), without users, so that counts
-- outlive the rows. `n` rows, sums, and histograms of durations as `domain/histogram.rs` writes them. The columns are
-- those of `COUNTED` in gavel-store.
CREATE TABLE stats_quarter (
    tenant TEXT NOT NULL,
    quarter BIGINT NOT NULL,
    surface TEXT,
    agent_id TEXT,
    definition_hash TEXT,
    requested_model TEXT,
    model TEXT,
    decision_type TEXT,
    outcome_category TEXT,
    n BIGINT NOT NULL,
    input_tokens BIGINT,
    output_tokens BIGINT,
    thought_tokens BIGINT,
    cached_tokens BIGINT,
    cost_nano BIGINT,
    cost_missing BIGINT,
    duration_us BIGINT,
    model_us BIGINT,
    tool_us BIGINT,
    human_us BIGINT,
    own_us BIGINT,
    duration_hist TEXT,
    model_hist TEXT,
    tool_hist TEXT,
    human_hist TEXT,
    own_hist TEXT
);

CREATE INDEX stats_quarter_by_time ON stats_quarter (tenant, quarter);

CREATE TABLE tool_stats_quarter (
    tenant TEXT NOT NULL,
    quarter BIGINT NOT NULL,
    server TEXT,
    tool TEXT,
    tool_digest TEXT,
    status TEXT,
    error_code TEXT,
    n BIGINT NOT NULL,
    argument_bytes BIGINT,
    result_bytes BIGINT,
    duration_us BIGINT,
    duration_hist TEXT
);

CREATE INDEX tool_stats_quarter_by_time ON tool_stats_quarter (tenant, quarter);

-- A mark: rows of this quarter have changed since it was counted, so it is read from the log. `taken` names the count
-- that is in progress and sees the change; a later change leaves a further mark.
CREATE TABLE stats_dirty (
    tenant TEXT NOT NULL,
    quarter BIGINT NOT NULL,
    taken TEXT
);

CREATE INDEX stats_dirty_by_quarter ON stats_dirty (tenant, quarter);

-- Quarters before this one are counted for good, since their rows may be deleted: marks of them mean nothing.
CREATE TABLE stats_final (
    id BIGINT NOT NULL PRIMARY KEY,
    quarter BIGINT NOT NULL,
    CONSTRAINT stats_one_end CHECK (id = 1)
);

INSERT INTO stats_final (id, quarter) VALUES (1, 0);

-- Every change leaves its mark, by whatever statement. Not a deletion: counts outlive the rows.
-- sqlite:
CREATE TRIGGER decision_added AFTER INSERT ON decision_log WHEN NEW.status = 'closed' BEGIN
    INSERT INTO stats_dirty (tenant, quarter) SELECT NEW.tenant, NEW.created_at / 900000000 WHERE NOT EXISTS (
        SELECT 1 FROM stats_dirty
        WHERE tenant = NEW.tenant AND quarter = NEW.created_at / 900000000 AND taken IS NULL);
END;

CREATE TRIGGER decision_changed AFTER UPDATE ON decision_log BEGIN
    INSERT INTO stats_dirty (tenant, quarter) SELECT NEW.tenant, NEW.created_at / 900000000 WHERE NOT EXISTS (
        SELECT 1 FROM stats_dirty
        WHERE tenant = NEW.tenant AND quarter = NEW.created_at / 900000000 AND taken IS NULL);
END;

CREATE TRIGGER tool_added AFTER INSERT ON tool_invocation_log WHEN NEW.status <> 'started' BEGIN
    INSERT INTO stats_dirty (tenant, quarter) SELECT NEW.tenant, NEW.created_at / 900000000 WHERE NOT EXISTS (
        SELECT 1 FROM stats_dirty
        WHERE tenant = NEW.tenant AND quarter = NEW.created_at / 900000000 AND taken IS NULL);
END;

CREATE TRIGGER tool_changed AFTER UPDATE ON tool_invocation_log BEGIN
    INSERT INTO stats_dirty (tenant, quarter) SELECT NEW.tenant, NEW.created_at / 900000000 WHERE NOT EXISTS (
        SELECT 1 FROM stats_dirty
        WHERE tenant = NEW.tenant AND quarter = NEW.created_at / 900000000 AND taken IS NULL);
END;

-- postgres:
CREATE FUNCTION stats_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    -- A count takes marks under the exclusive lock: so it sees this change, or this transaction sees the mark as taken.
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('stats', 0));
    INSERT INTO stats_dirty (tenant, quarter) SELECT NEW.tenant, NEW.created_at / 900000000 WHERE NOT EXISTS (
        SELECT 1 FROM stats_dirty
        WHERE tenant = NEW.tenant AND quarter = NEW.created_at / 900000000 AND taken IS NULL);
    RETURN NULL;
END $$;

CREATE TRIGGER decision_added AFTER INSERT ON decision_log FOR EACH ROW WHEN (NEW.status = 'closed')
EXECUTE FUNCTION stats_change();
CREATE TRIGGER decision_changed AFTER UPDATE ON decision_log FOR EACH ROW EXECUTE FUNCTION stats_change();
CREATE TRIGGER tool_added AFTER INSERT ON tool_invocation_log FOR EACH ROW WHEN (NEW.status <> 'started')
EXECUTE FUNCTION stats_change();
CREATE TRIGGER tool_changed AFTER UPDATE ON tool_invocation_log FOR EACH ROW EXECUTE FUNCTION stats_change();
-- both:

-- Claims of `Idempotency-Key`. Without an answer while its decision is open.
CREATE TABLE idempotency_key (
    scope TEXT NOT NULL PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    decision_id TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    answer_status BIGINT,
    answer_body TEXT,
    CONSTRAINT answer_whole CHECK ((answer_status IS NULL) = (answer_body IS NULL))
);

CREATE INDEX idempotency_key_by_expiry ON idempotency_key (expires_at);

-- What each user may still ask for, counted by all replicas together. A row for each user whose bucket of tokens is not
-- whole: it will be at `full_at` (microseconds since the epoch, by this database's clock). On SQLite always empty: a
-- process counts by itself. Not logged: a crash of the server forgets who asked in the last minute, and in return a
-- request waits for no disk. Half of each page is left free, so that an update stays in its page and touches no index.
CREATE @postgres(UNLOGGED )TABLE quota_bucket (
    tenant TEXT NOT NULL,
    user_id TEXT NOT NULL,
    full_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, user_id)
-- sqlite:
);
-- postgres:
) WITH (fillfactor = 50);
-- both:

-- One row for each run. The id is that of its decision, which stands in decision_log. Its holder works on it until
-- `lease_until` (this database's clock) at least; the fence counts how often it was taken up, and `lease_id` names the
-- last time. In a queued run `lease_until` says since when it waits. A run that another one called (`parent_run_id`)
-- has no lease: that of the outermost run (`root_id`) covers it. Only outermost runs have a thread or a session.
-- `takes`: how many processes in a row took it up and did not return it by an end, a wait or a hand-over; the one that
-- works on it now is counted. `worked_us`: how long processes have worked on it since it began or was resumed, counted
-- whenever its lease is renewed.
-- A resumed run is the same run, reopened: `attempt` counts how often, `attempts` has what was before as JSON,
-- `reopened_by` names the request that reopened it last, and `reopened_fence` is the fence at that time.
-- `waits_for`: the in-doubt actions that it waits for until a person settles them, a JSON list of their ids; NULL if it
-- waits for an approval.
CREATE TABLE agent_run (
    id TEXT NOT NULL PRIMARY KEY,
    root_id TEXT NOT NULL,
    parent_run_id TEXT,
    parent_action_id TEXT,
    thread_id TEXT,
    session_id TEXT,
    tenant TEXT NOT NULL,
    user_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    version BIGINT,
    definition_hash TEXT NOT NULL,
    snapshot_hash TEXT NOT NULL,
    input TEXT NOT NULL,
    settings TEXT NOT NULL,
    status TEXT NOT NULL,
    holder TEXT,
    lease_id TEXT,
    lease_until BIGINT,
    fence BIGINT NOT NULL,
    takes BIGINT NOT NULL,
    worked_us BIGINT NOT NULL DEFAULT 0,
    cancel_requested BOOLEAN NOT NULL DEFAULT FALSE,
    created_at BIGINT NOT NULL,
    started_at BIGINT,
    completed_at BIGINT,
    attempt BIGINT NOT NULL DEFAULT 0,
    attempts TEXT,
    reopened_by TEXT,
    reopened_fence BIGINT NOT NULL DEFAULT 0,
    waits_for TEXT,
    summary TEXT,
    output TEXT,
    error_message TEXT,
    stop_reason TEXT,
    recovered_from TEXT,
    in_doubt TEXT,
    steps BIGINT NOT NULL DEFAULT 0,
    input_tokens BIGINT NOT NULL DEFAULT 0,
    output_tokens BIGINT NOT NULL DEFAULT 0,
    thought_tokens BIGINT NOT NULL DEFAULT 0,
    cached_tokens BIGINT NOT NULL DEFAULT 0,
    CONSTRAINT run_status CHECK (
        status = 'queued' OR status = 'running' OR status = 'awaiting_confirmation' OR status = 'completed'
        OR status = 'failed' OR status = 'cancelled' OR status = 'paused'),
    -- What is over says since when, and only that.
    CONSTRAINT run_over_has_end CHECK (
        (status = 'queued' OR status = 'running' OR status = 'awaiting_confirmation') = (completed_at IS NULL)),
    -- Only what never began may end without a start: cancelled or given up while it was queued.
    CONSTRAINT run_has_start CHECK (
        status = 'queued' OR status = 'cancelled' OR status = 'failed' OR started_at IS NOT NULL),
    -- What was cut short, or went wrong, is never shown as completed.
    CONSTRAINT run_completed_is_whole CHECK (
        status <> 'completed' OR (error_message IS NULL AND stop_reason IS NULL AND in_doubt IS NULL)),
    CONSTRAINT run_called_has_call CHECK ((parent_run_id IS NULL) = (parent_action_id IS NULL)),
    CONSTRAINT run_root CHECK ((parent_run_id IS NULL) = (root_id = id)),
    -- Somebody can always be told to go on with it, or it is somebody's.
    CONSTRAINT run_lease CHECK (
        (lease_until IS NOT NULL) = (parent_run_id IS NULL AND (status = 'queued' OR status = 'running'))),
    CONSTRAINT run_queued_has_no_holder CHECK (status <> 'queued' OR (holder IS NULL AND lease_id IS NULL)),
    CONSTRAINT run_fence CHECK (fence >= 0)
);

CREATE INDEX agent_run_by_time ON agent_run (tenant, project_id, created_at, id);
CREATE INDEX agent_run_by_agent ON agent_run (tenant, project_id, agent_id, created_at, id);
CREATE INDEX agent_run_by_status ON agent_run (tenant, project_id, status, created_at, id);
CREATE INDEX agent_run_by_user ON agent_run (tenant, project_id, user_id, created_at, id);
CREATE INDEX agent_run_by_parent ON agent_run (tenant, project_id, parent_run_id, created_at, id);
CREATE INDEX agent_run_by_root ON agent_run (root_id);
CREATE INDEX agent_run_by_snapshot ON agent_run (snapshot_hash);
-- A call makes one run, however often it is tried.
CREATE UNIQUE INDEX agent_run_by_call ON agent_run (parent_run_id, parent_action_id) WHERE parent_run_id IS NOT NULL;
-- The few that somebody works on, or should: who looks for what the dead left reads nothing else.
CREATE INDEX agent_run_running ON agent_run (lease_until, id) WHERE status = 'running' AND lease_until IS NOT NULL;
-- Outermost runs that wait for a process or have one, in the order in which tenants and users take turns.
CREATE INDEX agent_run_in_turn ON agent_run (tenant, user_id, created_at, id)
WHERE parent_run_id IS NULL AND (status = 'queued' OR status = 'running');
-- Outermost runs that are over, for retention.
CREATE INDEX agent_run_over ON agent_run (completed_at, id) WHERE parent_run_id IS NULL AND completed_at IS NOT NULL;
-- A thread has one run at a time: of two that are taken up at once, one finds the other.
CREATE UNIQUE INDEX agent_run_of_thread ON agent_run (thread_id)
WHERE thread_id IS NOT NULL AND (status = 'running' OR status = 'awaiting_confirmation');
CREATE INDEX agent_run_by_thread ON agent_run (thread_id, created_at, id) WHERE thread_id IS NOT NULL;
-- Those of a thread that are going or wait their turn: of a long one every message looks for them.
CREATE INDEX agent_run_open_in_thread ON agent_run (thread_id, created_at, id)
WHERE thread_id IS NOT NULL AND (status = 'queued' OR status = 'running' OR status = 'awaiting_confirmation');
CREATE INDEX agent_run_by_session ON agent_run (session_id) WHERE session_id IS NOT NULL;
-- The sweep wakes those that wait for a settlement once the deadline of their session has passed.
CREATE INDEX agent_run_by_settlement ON agent_run (session_id, id)
WHERE status = 'awaiting_confirmation' AND waits_for IS NOT NULL;

-- The journal: what happened in a run, in order. Working state, read by the engine alone. `position`: the place of
-- an entry among those of its outermost run and of all runs that it called, in the order of their commits.
CREATE TABLE agent_run_entry (
    run_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    elapsed_us BIGINT NOT NULL,
    body TEXT NOT NULL,
    root_id TEXT NOT NULL,
    position BIGINT NOT NULL,
    PRIMARY KEY (run_id, number),
    CONSTRAINT entry_number CHECK (number >= 1),
    CONSTRAINT entry_position CHECK (position >= 1)
);

CREATE UNIQUE INDEX agent_run_entry_position ON agent_run_entry (root_id, position);

-- The definitions that runs run under, by the hash of their text; the same text is kept once.
CREATE TABLE agent_snapshot (
    hash TEXT NOT NULL PRIMARY KEY,
    text TEXT NOT NULL
);

-- Versions of agents that came by the API. None is ever changed; the highest is the current one. `id` names the request
-- that made it, so that one whose commit went unheard is known again.
CREATE TABLE agent_definition (
    tenant TEXT NOT NULL,
    project_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    version BIGINT NOT NULL,
    id TEXT NOT NULL,
    hash TEXT NOT NULL,
    definition TEXT NOT NULL,
    author TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, project_id, agent_id, version),
    CONSTRAINT definition_version CHECK (version >= 1)
);

-- A conversation of one user. `messages` is the number of its last message.
CREATE TABLE thread (
    id TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    user_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    messages BIGINT NOT NULL DEFAULT 0
);

CREATE INDEX thread_by_user ON thread (tenant, user_id, updated_at, id);
CREATE INDEX thread_by_activity ON thread (tenant, updated_at, id);
CREATE INDEX thread_by_time ON thread (updated_at);

-- What was said in it, by whom. Of a run there is at most one `user` and one `assistant`; of an action at most one
-- `approval_request`, one `approval`, one `action` (it was executed) and one `settlement`.
CREATE TABLE thread_message (
    thread_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    run_id TEXT NOT NULL,
    action_id TEXT,
    role TEXT NOT NULL,
    body TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (thread_id, number),
    CONSTRAINT message_role CHECK (
        role = 'user' OR role = 'assistant' OR role = 'approval_request' OR role = 'approval' OR role = 'settlement'
        OR role = 'action'),
    CONSTRAINT message_of_action CHECK ((role <> 'user' AND role <> 'assistant') = (action_id IS NOT NULL))
);

CREATE UNIQUE INDEX thread_message_once ON thread_message (run_id, role, COALESCE(action_id, ''));

-- A call of a run that has consequences or needs leave. Without `approval_id` nobody was asked: `policy` says why not.
CREATE TABLE agent_action (
    id TEXT NOT NULL PRIMARY KEY,
    approval_id TEXT,
    run_id TEXT NOT NULL,
    root_id TEXT NOT NULL,
    thread_id TEXT,
    tenant TEXT NOT NULL,
    user_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    sequence BIGINT NOT NULL,
    server TEXT NOT NULL,
    tool TEXT NOT NULL,
    tool_digest TEXT NOT NULL,
    side_effect BOOLEAN NOT NULL,
    arguments TEXT NOT NULL,
    input_hash TEXT NOT NULL,
    model TEXT NOT NULL,
    policy TEXT NOT NULL,
    decided_by TEXT,
    lost TEXT,
    details TEXT,
    status TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    resolution TEXT,
    resolved_by TEXT,
    resolved_at BIGINT,
    reason TEXT,
    grant_id TEXT,
    started_at BIGINT,
    completed_at BIGINT,
    error_code TEXT,
    error_message TEXT,
    settled_by TEXT,
    settled_at BIGINT,
    CONSTRAINT action_status CHECK (
        status = 'awaiting_confirmation' OR status = 'approved' OR status = 'executing' OR status = 'completed'
        OR status = 'failed' OR status = 'in_doubt' OR status = 'rejected' OR status = 'expired'),
    CONSTRAINT action_policy CHECK (policy = 'allow' OR policy = 'require_approval'),
    -- Who needs leave is asked, and nobody else is.
    CONSTRAINT action_leave CHECK (
        (policy = 'require_approval') = (approval_id IS NOT NULL) AND (approval_id IS NULL) = (expires_at IS NULL)),
    CONSTRAINT action_asked CHECK (
        approval_id IS NOT NULL
        OR (status <> 'awaiting_confirmation' AND status <> 'approved' AND status <> 'rejected' AND status <> 'expired')),
    CONSTRAINT action_resolution CHECK (
        resolution IS NULL OR resolution = 'reject' OR resolution = 'approve_once'
        OR resolution = 'approve_and_always_allow_recipient'),
    CONSTRAINT action_resolved CHECK (
        (resolution IS NULL) = (resolved_by IS NULL) AND (resolution IS NULL) = (resolved_at IS NULL)),
    -- Nothing runs that needed leave and has none.
    CONSTRAINT action_runs_with_leave CHECK (
        approval_id IS NULL OR status = 'awaiting_confirmation' OR status = 'expired'
        OR (status = 'rejected') = (COALESCE(resolution, '') = 'reject')),
    CONSTRAINT action_answered CHECK (
        approval_id IS NULL OR status = 'awaiting_confirmation' OR status = 'expired' OR resolution IS NOT NULL),
    CONSTRAINT action_failure_has_code CHECK ((status = 'failed' OR status = 'in_doubt') = (error_code IS NOT NULL)),
    CONSTRAINT action_settled CHECK ((settled_by IS NULL) = (settled_at IS NULL))
);

CREATE UNIQUE INDEX agent_action_by_approval ON agent_action (approval_id) WHERE approval_id IS NOT NULL;
CREATE INDEX agent_action_by_run ON agent_action (run_id, sequence);
CREATE INDEX agent_action_by_root ON agent_action (root_id);
CREATE INDEX agent_action_by_status ON agent_action (tenant, status, created_at, id);
CREATE INDEX agent_action_by_user ON agent_action (tenant, user_id, created_at, id);
-- What waits for a person: only these rows are in it, and metrics count them without the table.
CREATE INDEX agent_action_waiting ON agent_action (status, created_at, completed_at)
    WHERE status = 'awaiting_confirmation' OR status = 'in_doubt';
CREATE INDEX agent_action_expiring ON agent_action (expires_at) WHERE status = 'awaiting_confirmation';

-- Standing leave of a user: this tool, to exactly these recipients. Made by a person's resolve and by nothing else.
CREATE TABLE approval_grant (
    id TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    user_id TEXT NOT NULL,
    server TEXT NOT NULL,
    tool TEXT NOT NULL,
    recipients TEXT NOT NULL,
    tool_digest TEXT NOT NULL,
    action_id TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    uses BIGINT NOT NULL DEFAULT 0,
    last_used_at BIGINT,
    revoked_by TEXT,
    revoked_at BIGINT,
    CONSTRAINT grant_revoked CHECK ((revoked_by IS NULL) = (revoked_at IS NULL))
);

-- sqlite:
CREATE UNIQUE INDEX approval_grant_live ON approval_grant (tenant, user_id, server, tool, recipients, tool_digest)
-- postgres:
-- Recipients may be longer than an entry of an index.
CREATE UNIQUE INDEX approval_grant_live ON approval_grant (tenant, user_id, server, tool, md5(recipients), tool_digest)
-- both:
WHERE revoked_at IS NULL;
CREATE INDEX approval_grant_by_user ON approval_grant (tenant, user_id, created_at, id);

-- The audit log: one row for each thing that happened. `subject` names what it happened to, once for each kind, so that
-- a commit that went unheard and is made again enters nothing twice. `hash` is an HMAC over all other columns but `texts`
-- with the key that `key_id` names, `previous_hash` that of the row before; `format` says how the columns are put together
-- for it. `texts`: what people wrote, and arguments, as JSON with a salt. It can be erased; `detail` has its SHA-256.
CREATE TABLE audit (
    number BIGINT NOT NULL PRIMARY KEY,
    format BIGINT NOT NULL,
    at BIGINT NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    tenant TEXT NOT NULL,
    actor TEXT NOT NULL,
    decision_id TEXT,
    action_id TEXT,
    tool TEXT,
    detail TEXT NOT NULL,
    texts TEXT,
    key_id TEXT NOT NULL,
    previous_hash TEXT NOT NULL,
    hash TEXT NOT NULL,
    CONSTRAINT audit_number CHECK (number >= 1)
);

CREATE UNIQUE INDEX audit_once ON audit (subject, kind);
CREATE INDEX audit_by_decision ON audit (decision_id, number);
-- What people wrote, for its erasure; few rows, unlike effects, whose texts are found by their decision.
CREATE INDEX audit_said ON audit (tenant, actor) WHERE texts IS NOT NULL AND kind <> 'effect_intended';

-- The last row of it: one number and one hash, to be kept elsewhere as well. On PostgreSQL all writers wait for each other
-- here, at the end of their transactions.
CREATE TABLE audit_head (
    id BIGINT NOT NULL PRIMARY KEY,
    number BIGINT NOT NULL,
    hash TEXT NOT NULL,
    CONSTRAINT audit_one_head CHECK (id = 1)
);

INSERT INTO audit_head (id, number, hash)
VALUES (1, 0, '0000000000000000000000000000000000000000000000000000000000000000');

-- The key, where none was given and no file beside the database holds it. Who can read the database can then forge the
-- chain: a given key is worth more.
CREATE TABLE audit_key (
    id BIGINT NOT NULL PRIMARY KEY,
    secret TEXT NOT NULL,
    CONSTRAINT audit_one_key CHECK (id = 1)
);

-- sqlite:
-- Whoever replaces a row deletes it, which no trigger sees on a connection without recursive_triggers: so what comes
-- must be new, and follow the head.
CREATE TRIGGER audit_follows BEFORE INSERT ON audit BEGIN
    SELECT RAISE(ABORT, 'audit is append-only: a row must follow the head')
    WHERE NOT EXISTS (
        SELECT 1 FROM audit_head WHERE number = NEW.number - 1 AND hash = NEW.previous_hash);
    SELECT RAISE(ABORT, 'audit is append-only: this was entered before')
    WHERE EXISTS (SELECT 1 FROM audit WHERE number = NEW.number OR (subject = NEW.subject AND kind = NEW.kind));
END;

CREATE TRIGGER audit_moves_head AFTER INSERT ON audit BEGIN
    UPDATE audit_head SET number = NEW.number, hash = NEW.hash WHERE id = 1;
END;

CREATE TRIGGER audit_keeps BEFORE UPDATE ON audit
WHEN NEW.texts IS NOT NULL
    OR (NEW.number, NEW.format, NEW.at, NEW.kind, NEW.subject, NEW.tenant, NEW.actor, NEW.decision_id, NEW.action_id,
        NEW.tool, NEW.detail, NEW.key_id, NEW.previous_hash, NEW.hash)
    IS NOT (OLD.number, OLD.format, OLD.at, OLD.kind, OLD.subject, OLD.tenant, OLD.actor, OLD.decision_id,
        OLD.action_id, OLD.tool, OLD.detail, OLD.key_id, OLD.previous_hash, OLD.hash) BEGIN
    SELECT RAISE(ABORT, 'audit is append-only: no row is changed');
END;

CREATE TRIGGER audit_stays BEFORE DELETE ON audit BEGIN
    SELECT RAISE(ABORT, 'audit is append-only: no row is deleted');
END;

CREATE TRIGGER audit_head_advances BEFORE UPDATE ON audit_head
WHEN NEW.id <> OLD.id OR NEW.number <> OLD.number + 1
    OR NOT EXISTS (SELECT 1 FROM audit WHERE number = NEW.number AND hash = NEW.hash) BEGIN
    SELECT RAISE(ABORT, 'audit_head goes to the next row and nowhere else');
END;

CREATE TRIGGER audit_head_stays BEFORE DELETE ON audit_head BEGIN
    SELECT RAISE(ABORT, 'audit_head is never deleted');
END;

CREATE TRIGGER audit_head_is_one BEFORE INSERT ON audit_head BEGIN
    SELECT RAISE(ABORT, 'audit_head has one row');
END;

-- postgres:
-- What comes must follow the head, and moves it; afterwards, so that what does not come moves nothing.
CREATE FUNCTION audit_follows() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM 1 FROM audit_head WHERE number = NEW.number - 1 AND hash = NEW.previous_hash FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'audit is append-only: a row must follow the head';
    END IF;
    UPDATE audit_head SET number = NEW.number, hash = NEW.hash WHERE id = 1;
    RETURN NULL;
END $$;

CREATE FUNCTION audit_refuses() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION '% is append-only: no row is changed or deleted', TG_TABLE_NAME;
END $$;

-- Texts may be erased.
CREATE FUNCTION audit_keeps() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF TG_OP = 'UPDATE' AND NEW.texts IS NULL AND to_jsonb(NEW) - 'texts' = to_jsonb(OLD) - 'texts' THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '% is append-only: no row is changed or deleted', TG_TABLE_NAME;
END $$;

CREATE FUNCTION audit_head_advances() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    -- By a row that comes, and by nobody's own statement.
    IF NEW.id <> OLD.id OR NEW.number <> OLD.number + 1 OR pg_trigger_depth() < 2 THEN
        RAISE EXCEPTION 'audit_head goes to the next row and nowhere else';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER audit_follows AFTER INSERT ON audit FOR EACH ROW EXECUTE FUNCTION audit_follows();
CREATE TRIGGER audit_keeps BEFORE UPDATE OR DELETE ON audit FOR EACH ROW EXECUTE FUNCTION audit_keeps();
CREATE TRIGGER audit_stays BEFORE TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION audit_refuses();
CREATE TRIGGER audit_head_advances BEFORE UPDATE ON audit_head FOR EACH ROW EXECUTE FUNCTION audit_head_advances();
CREATE TRIGGER audit_head_stays BEFORE INSERT OR DELETE ON audit_head FOR EACH ROW EXECUTE FUNCTION audit_refuses();
CREATE TRIGGER audit_head_remains BEFORE TRUNCATE ON audit_head FOR EACH STATEMENT EXECUTE FUNCTION audit_refuses();
-- both:

-- Who is logged in to the console. `id` is the SHA-256 of the token in the browser's cookie: who reads this table
-- cannot log in. `kind` says what was shown. A key is named by `credential`, and `fingerprint` tells it from another
-- key of that name; its roles are looked up at each request. A token is not kept: `credential` is its user, `roles` are
-- those it gave (JSON), and `fingerprint` says whose tokens counted then. `user_id` is who acts. After `expires_at` it
-- is over whatever happens; `seen_at` is when it was used last, to the minute.
CREATE TABLE console_session (
    id TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    credential TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    roles TEXT,
    user_id TEXT,
    created_at BIGINT NOT NULL,
    seen_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    CONSTRAINT session_kind CHECK (kind = 'key' OR kind = 'token'),
    CONSTRAINT session_roles CHECK ((kind = 'token') = (roles IS NOT NULL)),
    CONSTRAINT session_acts CHECK (kind = 'key' OR user_id IS NOT NULL)
);

CREATE INDEX console_session_expiring ON console_session (expires_at);

-- A goal, and the plan that leads there. `plan` is the current version: its tasks as JSON; `last_task` is the number of
-- the last task id that was given, and `notes` what the version's author says about it. `run_id` names the run that
-- plans or works through the plan, or did so last. `started_at`: when the plan was confirmed; `cleanup`: what the
-- cleanup at the end of the work did, as JSON. `refinement_code`: why the last refinement made no new version.
CREATE TABLE planning_session (
    id TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    user_id TEXT NOT NULL,
    status TEXT NOT NULL,
    status_code TEXT,
    status_detail TEXT,
    prompt TEXT NOT NULL,
    repo_url TEXT NOT NULL,
    deadline BIGINT NOT NULL,
    version BIGINT NOT NULL DEFAULT 0,
    plan TEXT,
    last_task BIGINT NOT NULL DEFAULT 0,
    notes TEXT,
    run_id TEXT NOT NULL,
    refinement_code TEXT,
    refinement_detail TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    started_at BIGINT,
    completed_at BIGINT,
    cleanup TEXT,
    CONSTRAINT session_status CHECK (
        status = 'PLANNING' OR status = 'AWAITING_CONFIRMATION' OR status = 'EXECUTING' OR status = 'COMPLETED'
        OR status = 'FAILED' OR status = 'DEADLINE_EXCEEDED' OR status = 'CANCELLED'),
    -- What has ended says since when, and only that.
    CONSTRAINT session_over_has_end CHECK (
        (status = 'PLANNING' OR status = 'AWAITING_CONFIRMATION' OR status = 'EXECUTING') = (completed_at IS NULL)),
    -- What ended without reaching its goal says why, and only that.
    CONSTRAINT session_end_has_reason CHECK (
        (status = 'FAILED' OR status = 'DEADLINE_EXCEEDED' OR status = 'CANCELLED') = (status_code IS NOT NULL)
        AND (status_code IS NULL) = (status_detail IS NULL)),
    CONSTRAINT session_version CHECK (version >= 0 AND last_task >= 0),
    CONSTRAINT session_version_has_plan CHECK (
        (version > 0) = (plan IS NOT NULL) AND (plan IS NULL) = (notes IS NULL)),
    -- Without a plan nothing can be confirmed, and nothing can be worked through.
    CONSTRAINT session_confirms_a_plan CHECK (
        version > 0 OR (status <> 'AWAITING_CONFIRMATION' AND status <> 'EXECUTING' AND status <> 'COMPLETED')),
    CONSTRAINT session_work_has_start CHECK (
        started_at IS NOT NULL OR (status <> 'EXECUTING' AND status <> 'COMPLETED')),
    CONSTRAINT session_cleanup_after_work CHECK (cleanup IS NULL OR started_at IS NOT NULL),
    CONSTRAINT session_refinement CHECK (
        (refinement_code IS NULL) = (refinement_detail IS NULL) AND (refinement_code IS NULL OR version > 0))
);

CREATE INDEX planning_session_by_time ON planning_session (tenant, created_at, id);
CREATE INDEX planning_session_by_user ON planning_session (tenant, user_id, created_at, id);
CREATE INDEX planning_session_by_status ON planning_session (tenant, status, created_at, id);
-- The few that have not ended: the sweep reads nothing else, and neither does the count of a user's.
CREATE INDEX planning_session_due ON planning_session (deadline, id) WHERE completed_at IS NULL;
CREATE INDEX planning_session_open ON planning_session (tenant, user_id) WHERE completed_at IS NULL;
-- The sweep looks for runs that ended without moving their sessions on.
CREATE INDEX planning_session_at_work ON planning_session (run_id, id)
WHERE status = 'PLANNING' OR status = 'EXECUTING';
-- Those that have ended, for retention.
CREATE INDEX planning_session_over ON planning_session (completed_at, id) WHERE completed_at IS NOT NULL;

-- Every version of every plan, whole, with who asked for it, how it came about and why. No row is ever changed. `hash`
-- is the SHA-256 of the plan; `run_id` made it, or is the run after which a person edited it.
CREATE TABLE planning_change (
    session_id TEXT NOT NULL,
    version BIGINT NOT NULL,
    at BIGINT NOT NULL,
    by_name TEXT NOT NULL,
    kind TEXT NOT NULL,
    why TEXT NOT NULL,
    changes TEXT NOT NULL,
    hash TEXT NOT NULL,
    run_id TEXT NOT NULL,
    plan TEXT NOT NULL,
    last_task BIGINT NOT NULL,
    PRIMARY KEY (session_id, version),
    CONSTRAINT change_version CHECK (version >= 1 AND last_task >= 0),
    CONSTRAINT change_kind CHECK (kind = 'proposed' OR kind = 'refined' OR kind = 'edited' OR kind = 'changed'),
    CONSTRAINT change_proposal_is_first CHECK ((kind = 'proposed') = (version = 1))
);

-- Roles of PostgreSQL that may read the analysts' views, which gavel-store makes after the migrations (`views.rs`): of one
-- tenant or of all, with or without texts. `is_made_here`: gavel created the role, and sets its defaults.
CREATE TABLE analyst (
    name TEXT NOT NULL PRIMARY KEY,
    tenant TEXT,
    content BOOLEAN NOT NULL,
    is_made_here BOOLEAN NOT NULL
);
