//! Finds the target task.

macro_rules! find_on {
    () => {
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
    };
}

pub(super) use find_on;
