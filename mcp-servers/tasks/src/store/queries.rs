//! Changes of tasks: transactions, written once and instantiated for each database.

macro_rules! queries_on {
    ($module:ident, $database:ty, $begin:literal) => {
        pub(super) mod $module {
            use gavel_mcp_base::{Answer, Moment, ToolError, UserId, key_reused};
            use gavel_mcp_store::{Claim, KEY_LIFE_MICROS};
            use sqlx::{Pool, Transaction};

            use crate::store::{
                ChangeFault, MAX_CANDIDATES, MAX_TASKS, ambiguous, sql, too_many_tasks, unknown_task,
            };
            use crate::task::{Change, NewTask, Patch, Target, Task};
            use crate::text;

            type Db = $database;
            type Found = Result<Task, ToolError>;

            pub(crate) async fn change(
                pool: &Pool<Db>,
                user: &UserId,
                change: &Change,
                claim: Option<&Claim>,
                now: Moment,
            ) -> Result<Answer, ChangeFault> {
                let mut transaction = pool.begin_with($begin).await?;
                if let Some(claim) = claim
                    && let Some(kept) = kept_answer(&mut transaction, claim, now).await?
                {
                    // The answer is valid whether or not the rollback succeeds.
                    if let Err(error) = transaction.rollback().await {
                        tracing::warn!(%error, "a transaction that changed nothing could not be rolled back");
                    }
                    return Ok(kept);
                }
                let answer = match change {
                    Change::Add(task) => add(&mut transaction, user, task, now).await?,
                    Change::Update(target, patch) => {
                        update(&mut transaction, user, target, patch, now).await?
                    }
                    Change::Complete(target) => {
                        complete(&mut transaction, user, target, now).await?
                    }
                    Change::Delete(target) => delete(&mut transaction, user, target).await?,
                };
                if let Some(claim) = claim {
                    keep_answer(&mut transaction, claim, &answer).await?;
                }
                transaction.commit().await.map_err(ChangeFault::Unsettled)?;
                Ok(answer)
            }

            async fn add(
                transaction: &mut Transaction<'_, Db>,
                user: &UserId,
                task: &NewTask,
                now: Moment,
            ) -> Result<Answer, sqlx::Error> {
                let task: Option<Task> = sqlx::query_as(sql::ADD)
                    .bind(&task.id)
                    .bind(user.as_str())
                    .bind(&task.description)
                    .bind(text::key(&task.description))
                    .bind(task.due.map(|due| due.text()))
                    .bind(task.due.map(|due| due.end()))
                    .bind(<&str>::from(task.priority))
                    .bind(&task.notes)
                    .bind(text::key(task.notes.as_deref().unwrap_or_default()))
                    .bind(now.0)
                    .bind(MAX_TASKS)
                    .fetch_optional(&mut **transaction)
                    .await?;
                Ok(match task {
                    Some(task) => Answer::from_body(&serde_json::json!({ "task": task })),
                    None => too_many_tasks().into(),
                })
            }

            async fn update(
                transaction: &mut Transaction<'_, Db>,
                user: &UserId,
                target: &Target,
                patch: &Patch,
                now: Moment,
            ) -> Result<Answer, sqlx::Error> {
                let found = match find(transaction, user, target, &[(true, true)]).await? {
                    Ok(found) => found,
                    Err(error) => return Ok(error.into()),
                };
                let due = patch.due.flatten();
                let notes = patch.notes.clone().flatten();
                let updated: Option<Task> = sqlx::query_as(sql::UPDATE)
                    .bind(user.as_str())
                    .bind(&found.id)
                    .bind(&patch.description)
                    .bind(patch.description.as_deref().map(text::key))
                    .bind(patch.due.is_some())
                    .bind(due.map(|due| due.text()))
                    .bind(due.map(|due| due.end()))
                    .bind(patch.priority.map(<&str>::from))
                    .bind(patch.notes.is_some())
                    .bind(&notes)
                    .bind(text::key(notes.as_deref().unwrap_or_default()))
                    .bind(now.0)
                    .fetch_optional(&mut **transaction)
                    .await?;
                Ok(match updated {
                    Some(task) => Answer::from_body(
                        &serde_json::json!({ "task": task, "changed": patch.fields() }),
                    ),
                    None => unknown_task().into(),
                })
            }

            async fn complete(
                transaction: &mut Transaction<'_, Db>,
                user: &UserId,
                target: &Target,
                now: Moment,
            ) -> Result<Answer, sqlx::Error> {
                const OPEN_THEN_DONE: [(bool, bool); 2] = [(true, false), (false, true)];
                let found = match find(transaction, user, target, &OPEN_THEN_DONE).await? {
                    Ok(found) => found,
                    Err(error) => return Ok(error.into()),
                };
                let completed: Option<Task> = sqlx::query_as(sql::COMPLETE)
                    .bind(user.as_str())
                    .bind(&found.id)
                    .bind(now.0)
                    .fetch_optional(&mut **transaction)
                    .await?;
                if let Some(task) = completed {
                    return Ok(Answer::from_body(
                        &serde_json::json!({ "task": task, "already_done": false }),
                    ));
                }
                // Completed before, or deleted since it was found.
                Ok(match by_id(transaction, user, &found.id).await? {
                    Ok(task) => Answer::from_body(
                        &serde_json::json!({ "task": task, "already_done": true }),
                    ),
                    Err(error) => error.into(),
                })
            }

            async fn delete(
                transaction: &mut Transaction<'_, Db>,
                user: &UserId,
                target: &Target,
            ) -> Result<Answer, sqlx::Error> {
                let found = match find(transaction, user, target, &[(true, true)]).await? {
                    Ok(found) => found,
                    Err(error) => return Ok(error.into()),
                };
                let deleted: Option<Task> = sqlx::query_as(sql::DELETE)
                    .bind(user.as_str())
                    .bind(&found.id)
                    .fetch_optional(&mut **transaction)
                    .await?;
                Ok(match deleted {
                    Some(task) => Answer::from_body(&serde_json::json!({ "deleted": task })),
                    None => unknown_task().into(),
                })
            }

            /// The target task. A title is compared first with whole descriptions, in each of `rounds` (open, done), then
            /// with parts of them. So a title that names a finished task exactly never falls through to another task, and
            /// completing twice completes one.
            async fn find(
                transaction: &mut Transaction<'_, Db>,
                user: &UserId,
                target: &Target,
                rounds: &[(bool, bool)],
            ) -> Result<Found, sqlx::Error> {
                let title = match target {
                    Target::Id(id) => return by_id(transaction, user, id).await,
                    Target::Title(title) => text::key(title),
                };
                for pattern in [text::exactly(&title), text::containing(&title)] {
                    for (open, done) in rounds {
                        let mut matching: Vec<Task> = sqlx::query_as(sql::BY_TITLE)
                            .bind(user.as_str())
                            .bind(&pattern)
                            .bind(open)
                            .bind(done)
                            .bind(MAX_CANDIDATES as i64 + 1)
                            .fetch_all(&mut **transaction)
                            .await?;
                        match (matching.pop(), matching.is_empty()) {
                            (None, _) => {}
                            (Some(only), true) => return Ok(Ok(only)),
                            (Some(last), false) => {
                                matching.push(last);
                                return Ok(Err(ambiguous(&matching)));
                            }
                        }
                    }
                }
                Ok(Err(unknown_task()))
            }

            async fn by_id(transaction: &mut Transaction<'_, Db>, user: &UserId, id: &str) -> Result<Found, sqlx::Error> {
                let found: Option<Task> = sqlx::query_as(sql::BY_ID)
                    .bind(user.as_str())
                    .bind(id)
                    .fetch_optional(&mut **transaction)
                    .await?;
                Ok(found.ok_or_else(unknown_task))
            }

            /// The answer stored under the key; `None` if this call now owns the key. Waits for a running call with the
            /// same key.
            async fn kept_answer(
                transaction: &mut Transaction<'_, Db>,
                claim: &Claim,
                now: Moment,
            ) -> Result<Option<Answer>, sqlx::Error> {
                sqlx::query(sql::FORGET_KEY)
                    .bind(claim.user.as_str())
                    .bind(claim.tool)
                    .bind(&claim.key)
                    .bind(now.0 - KEY_LIFE_MICROS)
                    .execute(&mut **transaction)
                    .await?;
                let claimed = sqlx::query(sql::CLAIM_KEY)
                    .bind(claim.user.as_str())
                    .bind(claim.tool)
                    .bind(&claim.key)
                    .bind(&claim.digest)
                    .bind(now.0)
                    .execute(&mut **transaction)
                    .await?;
                if claimed.rows_affected() == 1 {
                    return Ok(None);
                }
                let (digest, is_error, answer): (String, bool, String) = sqlx::query_as(sql::KEPT_ANSWER)
                    .bind(claim.user.as_str())
                    .bind(claim.tool)
                    .bind(&claim.key)
                    .fetch_one(&mut **transaction)
                    .await?;
                if digest != claim.digest {
                    return Ok(Some(key_reused().into()));
                }
                let body = serde_json::from_str(&answer).map_err(|error| sqlx::Error::Decode(error.into()))?;
                Ok(Some(Answer::new(is_error, body)))
            }

            async fn keep_answer(
                transaction: &mut Transaction<'_, Db>,
                claim: &Claim,
                answer: &Answer,
            ) -> Result<(), sqlx::Error> {
                sqlx::query(sql::KEEP_ANSWER)
                    .bind(claim.user.as_str())
                    .bind(claim.tool)
                    .bind(&claim.key)
                    .bind(answer.is_error)
                    .bind(answer.body.to_string())
                    .execute(&mut **transaction)
                    .await
                    .map(drop)
            }

        }
    };
}

queries_on!(sqlite, sqlx::Sqlite, "BEGIN IMMEDIATE");
queries_on!(postgres, sqlx::Postgres, "BEGIN");
