//! Idempotency keys and their stored answers.

macro_rules! keys_on {
    () => {
        /// The answer stored under the key; `None` if this call now owns the key. Waits for a running call with the
        /// same key.
        async fn kept_answer(
            transaction: &mut Transaction<'_, Db>,
            user: &UserId,
            claim: &Claim,
            now: Moment,
        ) -> Result<Option<Answer>, sqlx::Error> {
            sqlx::query(sql::FORGET_KEY)
                .bind(user.as_str())
                .bind(claim.tool)
                .bind(&claim.key)
                .bind(now.0 - KEY_LIFE_MICROS)
                .execute(&mut **transaction)
                .await?;
            let claimed = sqlx::query(sql::CLAIM_KEY)
                .bind(user.as_str())
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
                .bind(user.as_str())
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
            user: &UserId,
            claim: &Claim,
            answer: &Answer,
        ) -> Result<(), sqlx::Error> {
            sqlx::query(sql::KEEP_ANSWER)
                .bind(user.as_str())
                .bind(claim.tool)
                .bind(&claim.key)
                .bind(answer.is_error)
                .bind(answer.body.to_string())
                .execute(&mut **transaction)
                .await
                .map(drop)
        }

        pub(crate) async fn prune(pool: &Pool<Db>, now: Moment) -> Result<u64, sqlx::Error> {
            let pruned = sqlx::query(sql::PRUNE)
                .bind(now.0 - KEY_LIFE_MICROS)
                .execute(pool)
                .await?;
            Ok(pruned.rows_affected())
        }
    };
}

pub(super) use keys_on;
