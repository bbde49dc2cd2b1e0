//! `gavel plan edit`.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, bail};

use super::follow::{Showing, missing, session};
use super::outcome::{is_open, tell};
use super::{draft, editor, id, text};
use crate::api::planning::Session;
use crate::app::Work;
use crate::cli::client::{Client, Refused};
use crate::cli::exit::{Exit, Usage};
use crate::cli::gavel::{Gavel, Talk, Where};
use crate::cli::lines::{Lines, Next};
use crate::cli::output;
use crate::cli::runs::is_here;
use crate::domain::ids::PlanningSessionId;

/// The longest text, in bytes. The longest plan is much shorter.
const MOST_BYTES: u64 = 1 << 20;

/// Options of `gavel plan edit`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session
    #[arg(value_parser = id)]
    id: PlanningSessionId,
    /// The edited plan as JSON, instead of an editor; - is standard input
    #[arg(long, value_name = "FILE")]
    file: Option<String>,
    /// The version that the file was made from; another one is not overwritten [default: the current version]
    #[arg(long, value_name = "N", requires = "file")]
    if_version: Option<u32>,
    /// Print the session with its plan as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
}

const EXAMPLES: &str = "\
Examples:
  gavel plan edit 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80
  EDITOR='code --wait' gavel plan edit 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel plan edit --file plan.json --if-version 2 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80

The text has summary, tasks, assumptions and risks. A task keeps its id; a new task has none. The order of the tasks is \
the order of the work. The plan is checked like one of the model's. If it has errors, or if the plan was changed in \
between, nothing is changed and your text is kept.";

/// What became of an edit.
pub(super) enum Edited {
    /// A new version.
    Saved(Box<Session>),
    /// The text is the same as before.
    Unchanged,
    /// It has errors, which were shown; the text is kept.
    Kept,
}

impl Talk for Args {
    const WORK: Work = Work::Act;

    fn place(&self) -> Where {
        self.place.clone()
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let before = session(gavel, &self.place, self.id).await?;
        let edited = match &self.file {
            Some(file) => {
                let version = self.if_version.unwrap_or(before.plan_version);
                let draft = draft::read(&read(file)?, file)?;
                let edited = gavel.edit_plan(self.id, version, &draft).await;
                Box::new(edited.map_err(|error| missing(error, &self.place, self.id))?)
            }
            None if !is_here() => {
                let words = "there is no terminal for an editor; give the plan with --file";
                return Err(Usage(words.to_owned()).into());
            }
            None => match in_editor(gavel, &self.place, &before, None).await? {
                Edited::Saved(edited) => edited,
                Edited::Unchanged => before.into(),
                Edited::Kept => return Ok(Exit::Invalid),
            },
        };
        let showing = Showing {
            json: self.json,
            events: false,
            quiet: true,
        };
        let exit = tell(&edited, &self.place, showing)?;
        let version = gavel.version(self.id, edited.plan_version).await?;
        output::note(&text::changes(version.version, &version.changes));
        Ok(exit)
    }
}

/// Lets the user edit the plan until it is valid, or the user stops.
///
/// # Errors
/// The session does not wait for its confirmation; the editor fails; the plan was changed in between, or cannot be sent.
/// The text is kept, and a note says where.
pub(super) async fn in_editor(
    client: &Client,
    place: &Where,
    session: &Session,
    lines: Option<&mut Lines>,
) -> anyhow::Result<Edited> {
    let (id, version) = (session.session_id, session.plan_version);
    if !is_open(session) {
        bail!(
            "the plan of session {id} cannot be edited: the session is {}",
            session.status
        );
    }
    let before = draft::of(session)?;
    let path = editor::new_file(&format!("gavel-plan-{id}-v{version}"), &before)?;
    let edited = until_valid(client, (id, version), &before, &path, lines).await;
    match &edited {
        // Left behind, it would only take space.
        Ok(Edited::Saved(_) | Edited::Unchanged) => drop(fs::remove_file(&path)),
        Ok(Edited::Kept) | Err(_) => output::note(&format!(
            "nothing was changed. Your text is kept in {0}; to send it: gavel plan edit{1} --file {0} --if-version \
             {version} {id}",
            path.display(),
            place.repeated()
        )),
    }
    edited
}

async fn until_valid(
    client: &Client,
    (id, version): (PlanningSessionId, u32),
    before: &str,
    path: &Path,
    lines: Option<&mut Lines>,
) -> anyhow::Result<Edited> {
    let mut own = Lines::new();
    let lines = lines.unwrap_or(&mut own);
    loop {
        let text = editor::edited(path).await?;
        if text == before {
            output::note(&format!("the text is unchanged; plan {version} remains"));
            return Ok(Edited::Unchanged);
        }
        let sent = match draft::read(&text, &path.display().to_string()) {
            Ok(draft) => client.edit_plan(id, version, &draft).await,
            Err(error) => Err(error),
        };
        match sent {
            Ok(edited) => return Ok(Edited::Saved(Box::new(edited))),
            Err(error) if is_invalid(&error) => output::note(&format!("the plan is invalid: {error:#}")),
            Err(error) => return Err(error),
        }
        if !edits_again(lines).await? {
            return Ok(Edited::Kept);
        }
    }
}

/// Can the user correct it in the text?
fn is_invalid(error: &anyhow::Error) -> bool {
    error.is::<Usage>() || Refused::in_error(error).is_some_and(Refused::is_invalid_request)
}

async fn edits_again(lines: &mut Lines) -> anyhow::Result<bool> {
    loop {
        let next = lines.next("Edit it again? [y]es, [n]o: ").await?;
        let Next::Line(line) = next else { return Ok(false) };
        match line.trim().to_lowercase().as_str() {
            "" | "y" | "yes" => return Ok(true),
            "n" | "no" => return Ok(false),
            _ => {}
        }
    }
}

/// The text of `--file`.
fn read(file: &str) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let read = match file {
        "-" => io::stdin().lock().take(MOST_BYTES + 1).read_to_end(&mut bytes),
        path => File::open(path).and_then(|opened| opened.take(MOST_BYTES + 1).read_to_end(&mut bytes)),
    };
    read.map_err(|error| Usage(format!("--file {file}: cannot be read: {error}")))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(Usage(format!("--file {file}: is longer than 1 MiB")).into());
    }
    String::from_utf8(bytes).context(Usage(format!("--file {file}: is not UTF-8 text")))
}
