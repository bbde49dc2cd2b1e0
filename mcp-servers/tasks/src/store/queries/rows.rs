//! Converts rows to tasks.

macro_rules! rows_on {
    ($row:ty) => {
        struct Listed(Task, Place);

        impl<'r> FromRow<'r, $row> for Listed {
            fn from_row(row: &'r $row) -> Result<Self, sqlx::Error> {
                let place = Place {
                    group: row.try_get("order_group")?,
                    time: row.try_get("order_time")?,
                    priority: row.try_get("order_priority")?,
                    created_at: row.try_get("created_at")?,
                    id: row.try_get("id")?,
                };
                Ok(Self(Task::from_row(row)?, place))
            }
        }

        impl<'r> FromRow<'r, $row> for Task {
            fn from_row(row: &'r $row) -> Result<Self, sqlx::Error> {
                let priority: String = row.try_get("priority")?;
                let done: bool = row.try_get("done")?;
                let completed_at: Option<i64> = row.try_get("completed_at")?;
                Ok(Self {
                    id: row.try_get("id")?,
                    description: row.try_get("description")?,
                    status: if done { Status::Done } else { Status::Open },
                    priority: priority
                        .parse()
                        .map_err(|error: strum::ParseError| sqlx::Error::Decode(error.into()))?,
                    due: row.try_get("due")?,
                    notes: row.try_get("notes")?,
                    created_at: Moment(row.try_get("created_at")?),
                    updated_at: Moment(row.try_get("updated_at")?),
                    completed_at: completed_at.map(Moment),
                })
            }
        }
    };
}

pub(super) use rows_on;
