//! `gavel plan start`.

use chrono::Utc;
use chrono_tz::Tz;

use super::deadline::Deadline;
use super::follow::{Followed, How, Showing, follow};
use super::outcome::{is_open, tell};
use super::{STATUSES, connect_servers, conversation, facts};
use crate::api::planning::{Session, StartBody};
use crate::app::Work;
use crate::cli::exit::{Exit, Usage};
use crate::cli::gavel::{Gavel, Talk, Where};
use crate::cli::interrupt::unless_stopped;
use crate::cli::output;
use crate::domain::planning_session::PLANNER;

/// Options of `gavel plan start`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{STATUSES}"))]
pub(crate) struct Args {
    /// The goal, in your own words
    #[arg(value_name = "GOAL", required = true, num_args = 1..)]
    goal: Vec<String>,
    /// The repository, such as https://github.com/OWNER/REPO
    #[arg(long, value_name = "URL")]
    repo: String,
    /// When the work must have ended: 90m, 2h, 1d, or a time such as 2026-12-01T18:00:00+01:00
    #[arg(long, value_name = "TIME", value_parser = Deadline::parse)]
    deadline: Deadline,
    /// The user's time zone, an IANA name [default: this machine's]
    #[arg(long, value_name = "NAME", value_parser = str::parse::<Tz>)]
    time_zone: Option<Tz>,
    /// Do not wait for the plan: print the session's id. Only with --server: without it, this process makes the plan
    #[arg(long, requires = "server", conflicts_with_all = ["json", "events"])]
    background: bool,
    #[command(flatten)]
    showing: Showing,
    #[command(flatten)]
    place: Where,
}

const EXAMPLES: &str = "\
Examples:
  gavel plan start --repo https://github.com/acme/dates --deadline 2h \"Accept ISO weeks, with tests\"
  gavel plan start --repo https://github.com/acme/dates --deadline 1d --json \"Update the README\" | jq .plan
  gavel plan start --server http://localhost:8080 --repo https://github.com/acme/dates --deadline 90m \"Fix issue 7\"

gavel reads the repository, and proposes a plan; it changes nothing. On a terminal you then say what to change until \
the plan fits; the word execute confirms it, and gavel does the work. Ctrl-C stops watching; the session continues until its deadline. GITHUB_TOKEN (or GITHUB_TOKEN_FILE) \
gives access to the repository.";

impl Talk for Args {
    const WORK: Work = Work::Act;

    fn place(&self) -> Where {
        self.place.clone()
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let Some(begun) = unless_stopped(begin(self, gavel)).await? else {
            output::note(&format!(
                "it is unknown whether the session has begun; if it has, `gavel plan list{}` shows it",
                self.place.repeated()
            ));
            return Ok(Exit::Interrupted);
        };
        let begun = begun?;
        if self.background {
            output::line(&begun.session_id.to_string())?;
            if !self.showing.quiet {
                let place = self.place.repeated();
                output::note(&format!("watch it: gavel plan watch{place} {}", begun.session_id));
            }
            return Ok(Exit::Done);
        }
        let followed = follow(gavel, &self.place, begun, self.showing, How::BEGUN).await?;
        if let Followed::Reached(session) = &followed
            && let Some(read) = facts::read(session).filter(|_| !self.showing.quiet && !self.showing.events)
        {
            output::note(&read);
        }
        match followed {
            Followed::Left => Ok(Exit::Interrupted),
            Followed::Waits => Ok(Exit::NeedsApproval),
            Followed::Reached(session) if is_open(&session) && self.showing.is_conversation() => {
                conversation::hold(gavel, &self.place, *session, self.showing).await
            }
            Followed::Reached(session) => tell(&session, &self.place, self.showing),
        }
    }
}

async fn begin(args: &Args, gavel: &Gavel) -> anyhow::Result<Session> {
    let prompt = args.goal.join(" ");
    if prompt.trim().is_empty() {
        return Err(Usage("the goal is blank; say what must be reached".to_owned()).into());
    }
    connect_servers(gavel, PLANNER).await?;
    let new = StartBody {
        prompt,
        repo_url: args.repo.clone(),
        deadline: args.deadline.at(Utc::now()),
        // Without a named zone on this machine, the session gets none.
        time_zone: args
            .time_zone
            .or_else(|| iana_time_zone::get_timezone().ok()?.parse().ok())
            .map(|zone| zone.name().to_owned()),
    };
    gavel.start_planning(&new).await
}
