//! Parses database URLs.

use std::ffi::OsString;
use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use gavel_mcp_base::settings;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;

/// A database that can be opened.
#[derive(Clone)]
pub enum Location {
    /// A file.
    Sqlite(Box<SqliteConnectOptions>),
    /// A server.
    Postgres(Box<PgConnectOptions>),
}

impl Location {
    /// The database of the server `name` by its settings: a URL, or a file with it; without them, a file.
    pub fn configured(name: &str, url: &Option<String>, file: &Option<OsString>) -> anyhow::Result<Self> {
        let (what, setting) = (format!("the {name} database"), name.to_uppercase());
        let names = (
            &*format!("{setting}_DATABASE_URL (--database)"),
            &*format!("{setting}_DATABASE_URL_FILE (--database-file)"),
        );
        let url = settings::either(&what, names, url.as_deref(), file.as_deref())?;
        Self::parse(&what, &url.unwrap_or_else(|| format!("sqlite://{name}.db")))
    }

    /// Parses a URL; `what` names the database in errors: "the tasks database".
    fn parse(what: &str, url: &str) -> anyhow::Result<Self> {
        let (scheme, rest) = url.split_once(':').unwrap_or_default();
        match scheme {
            "sqlite" => {
                let path = rest.strip_prefix("//").unwrap_or(rest);
                ensure!(
                    !path.is_empty() && !path.starts_with([':', '?']) && !url.contains("mode="),
                    "{what} has to be a file: sqlite://PATH"
                );
                let options = SqliteConnectOptions::from_str(url)
                    .with_context(|| format!("{what} is not a URL of the form sqlite://PATH"))?;
                Ok(Self::Sqlite(Box::new(options)))
            }
            "postgres" | "postgresql" => {
                let options = PgConnectOptions::from_str(url).ok().with_context(|| {
                    format!("{what} is not a URL of the form postgres://USER:PASSWORD@HOST:PORT/DATABASE")
                })?;
                Ok(Self::Postgres(Box::new(options)))
            }
            _ => bail!("{what} has to be a URL: sqlite://PATH or postgres://USER:PASSWORD@HOST:PORT/DATABASE"),
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(options) => write!(f, "sqlite {}", options.get_filename().display()),
            Self::Postgres(options) => write!(f, "postgres at {}", options.get_host()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHAT: &str = "the tasks database";

    #[test]
    fn files_and_postgres_are_databases_and_nothing_else_is() {
        for url in [
            "sqlite://tasks.db",
            "sqlite:///var/lib/tasks.db",
            "sqlite:tasks.db",
            "postgres://u:p@localhost/tasks",
            "postgresql://localhost:5433/tasks",
        ] {
            assert!(Location::parse(WHAT, url).is_ok(), "{url}");
        }
        for url in [
            "",
            "tasks.db",
            "sqlite:",
            "sqlite://",
            "sqlite::memory:",
            "sqlite://x?mode=memory",
            "mysql://localhost/tasks",
        ] {
            assert!(Location::parse(WHAT, url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_password_is_neither_printed_nor_part_of_an_error() {
        let location = Location::parse(WHAT, "postgres://u:canary@localhost/tasks").expect("a URL");
        assert!(!format!("{location:?}").contains("canary"));
        let error = Location::parse(WHAT, "postgres://u:canary@localhost:x/tasks").expect_err("no port");
        assert!(!format!("{error:?}").contains("canary"));
    }
}
