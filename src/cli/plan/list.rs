//! `gavel plan list`: one page of planning sessions.

use super::text;
use crate::api::planning::Session;
use crate::app::Work;
use crate::cli::client::Query;
use crate::cli::exit::Exit;
use crate::cli::gavel::{Gavel, Talk, Where};
use crate::cli::list::{Paging, at, rows};
use crate::cli::table::clipped;
use crate::domain::planning_session::SessionStatus;

/// Options of `gavel plan list`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only sessions with this status
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(SessionStatus::ALL.iter().map(|status| status.as_str())), ignore_case = true)]
    status: Option<String>,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    place: Where,
}

const EXAMPLES: &str = "\
Examples:
  gavel plan list --status AWAITING_CONFIRMATION
  gavel plan list --json | jq -r .sessionId
  gavel plan list --server http://localhost:8080 --user ann";

const HEADS: [&str; 7] = [
    "changed (UTC)",
    "session",
    "status",
    "plan",
    "left",
    "repository",
    "goal",
];

impl Talk for Args {
    const WORK: Work = Work::Read;

    fn place(&self) -> Where {
        self.place.clone()
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let status = self.status.as_ref().map(|status| status.to_uppercase());
        let query = Query {
            filter: status.map(|status| format!("status = \"{status}\"")),
            ..self.paging.query()
        };
        let page = gavel.sessions(&query).await?;
        let none = format!("no planning sessions{}", self.place.whose_words());
        self.paging.print(&page, &none, |sessions| rows(&HEADS, sessions, row))
    }
}

fn row(session: &Session) -> Vec<String> {
    vec![
        at(session.updated_at),
        session.session_id.to_string(),
        session.status.to_string(),
        match session.plan_version {
            0 => "-".to_owned(),
            version => format!("{version} ({})", session.plan.len()),
        },
        match session.status.has_ended() {
            true => "-".to_owned(),
            false => text::length(session.time_left_ms),
        },
        clipped(&session.repo_url, 50),
        clipped(&session.prompt, 60),
    ]
}
