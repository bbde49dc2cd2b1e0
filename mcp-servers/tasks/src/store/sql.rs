//! The SQL, in the subset that SQLite and PostgreSQL share.

/// The columns that make up a task.
macro_rules! columns {
    () => {
        "id, description, due, priority, notes, done, created_at, updated_at, completed_at"
    };
}

/// Parameters $1 to $8: user, open, done, pattern, with due_before, due_before, with due_after, due_after.
macro_rules! matching {
    () => {
        "FROM tasks WHERE user_id = $1
            AND ((NOT done AND $2) OR (done AND $3))
            AND (title_key LIKE $4 ESCAPE '!' OR notes_key LIKE $4 ESCAPE '!')
            AND (NOT $5 OR due_at < $6)
            AND (NOT $7 OR due_at > $8)"
    };
}

pub(super) const COUNT: &str = concat!("SELECT COUNT(*) ", matching!());

pub(super) const LIST: &str = concat!(
    "SELECT * FROM (SELECT ",
    columns!(),
    ", CAST(CASE WHEN done THEN 1 ELSE 0 END AS BIGINT) AS order_group,
       CASE WHEN done THEN -completed_at ELSE COALESCE(due_at, 9223372036854775807) END AS order_time,
       CAST(CASE WHEN done THEN 0 WHEN priority = 'high' THEN 1 WHEN priority = 'normal' THEN 2
            ELSE 3 END AS BIGINT) AS order_priority ",
    matching!(),
    ") AS listed
     WHERE (order_group, order_time, order_priority, created_at, id) > ($9, $10, $11, $12, $13)
     ORDER BY order_group, order_time, order_priority, created_at, id
     LIMIT $14"
);

pub(super) const BY_ID: &str = concat!("SELECT ", columns!(), " FROM tasks WHERE user_id = $1 AND id = $2");

pub(super) const BY_TITLE: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM tasks WHERE user_id = $1 AND title_key LIKE $2 ESCAPE '!'
        AND ((NOT done AND $3) OR (done AND $4))
      ORDER BY done, created_at, id LIMIT $5"
);

pub(super) const ADD: &str = concat!(
    "INSERT INTO tasks (id, user_id, description, title_key, due, due_at, priority, notes, notes_key,
                        done, created_at, updated_at)
     SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, FALSE, $10, $10
     WHERE (SELECT COUNT(*) FROM tasks WHERE user_id = $2) < $11 RETURNING ",
    columns!()
);

pub(super) const UPDATE: &str = concat!(
    "UPDATE tasks SET
        description = COALESCE($3, description),
        title_key = COALESCE($4, title_key),
        due = CASE WHEN $5 THEN $6 ELSE due END,
        due_at = CASE WHEN $5 THEN $7 ELSE due_at END,
        priority = COALESCE($8, priority),
        notes = CASE WHEN $9 THEN $10 ELSE notes END,
        notes_key = CASE WHEN $9 THEN $11 ELSE notes_key END,
        updated_at = $12
     WHERE user_id = $1 AND id = $2 RETURNING ",
    columns!()
);

pub(super) const COMPLETE: &str = concat!(
    "UPDATE tasks SET done = TRUE, completed_at = $3, updated_at = $3
     WHERE user_id = $1 AND id = $2 AND NOT done RETURNING ",
    columns!()
);

pub(super) const DELETE: &str = concat!(
    "DELETE FROM tasks WHERE user_id = $1 AND id = $2 RETURNING ",
    columns!()
);

pub(super) const FORGET_KEY: &str = "DELETE FROM tasks_idempotency
     WHERE user_id = $1 AND tool = $2 AND idem_key = $3 AND created_at < $4";

pub(super) const CLAIM_KEY: &str = "INSERT INTO tasks_idempotency
        (user_id, tool, idem_key, arguments, is_error, answer, created_at)
     VALUES ($1, $2, $3, $4, FALSE, '', $5) ON CONFLICT DO NOTHING";

pub(super) const KEPT_ANSWER: &str = "SELECT arguments, is_error, answer FROM tasks_idempotency
     WHERE user_id = $1 AND tool = $2 AND idem_key = $3";

pub(super) const KEEP_ANSWER: &str = "UPDATE tasks_idempotency SET is_error = $4, answer = $5
     WHERE user_id = $1 AND tool = $2 AND idem_key = $3";

pub(super) const PRUNE: &str = "DELETE FROM tasks_idempotency WHERE created_at < $1";
