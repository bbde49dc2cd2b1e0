//! One change in one transaction.

macro_rules! change_on {
    ($begin:literal) => {
        pub(crate) async fn change(
            pool: &Pool<Db>,
            user: &UserId,
            change: &Change,
            claim: Option<&Claim>,
            now: Moment,
        ) -> Result<Answer, ChangeFault> {
            let mut transaction = pool.begin_with($begin).await?;
            if let Some(claim) = claim
                && let Some(kept) = kept_answer(&mut transaction, user, claim, now).await?
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
                keep_answer(&mut transaction, user, claim, &answer).await?;
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
    };
}

pub(super) use change_on;
