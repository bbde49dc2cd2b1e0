//! Pages of tasks.

macro_rules! list_on {
    () => {
        pub(crate) async fn list(
            pool: &Pool<Db>,
            user: &UserId,
            filter: &Filter,
            after: &Place,
            limit: i64,
        ) -> Result<(Vec<(Task, Place)>, u64), sqlx::Error> {
            let pattern = text::containing(filter.query.as_deref().unwrap_or_default());
            let mut connection = pool.acquire().await?;
            let listed: Vec<Listed> = sqlx::query_as(sql::LIST)
                .bind(user.as_str())
                .bind(filter.open)
                .bind(filter.done)
                .bind(&pattern)
                .bind(filter.due_before.is_some())
                .bind(filter.due_before)
                .bind(filter.due_after.is_some())
                .bind(filter.due_after)
                .bind(after.group)
                .bind(after.time)
                .bind(after.priority)
                .bind(after.created_at)
                .bind(&after.id)
                .bind(limit)
                .fetch_all(&mut *connection)
                .await?;
            let total: i64 = sqlx::query_scalar(sql::COUNT)
                .bind(user.as_str())
                .bind(filter.open)
                .bind(filter.done)
                .bind(&pattern)
                .bind(filter.due_before.is_some())
                .bind(filter.due_before)
                .bind(filter.due_after.is_some())
                .bind(filter.due_after)
                .fetch_one(&mut *connection)
                .await?;
            let listed = listed.into_iter().map(|Listed(task, place)| (task, place));
            Ok((listed.collect(), total.unsigned_abs()))
        }
    };
}

pub(super) use list_on;
