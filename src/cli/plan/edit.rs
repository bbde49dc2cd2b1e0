//! `gavel plan edit`.

use std::env;
use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use tokio::process::Command;

use super::follow::{has_open_plan, session, tell};
use super::show::version;
use super::text;
use crate::api::planning::Session;
use crate::cli::client::{Client, Refused};
use crate::cli::exit::{Exit, Usage};
use crate::cli::gavel::{Gavel, Talk, Work};
use crate::cli::interrupt::Signals;
use crate::cli::lines::{self, Lines};
use crate::cli::output;
use crate::cli::runs::{Showing, is_here};
use crate::domain::ids::PlanningSessionId;
use crate::domain::plan::{Draft, DraftTask, Task};

/// Options of `gavel plan edit`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session
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

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let before = session(gavel, self.id).await?;
        let edited = match &self.file {
            Some(file) => {
                let version = self.if_version.unwrap_or(before.plan_version);
                let draft = read_draft(&lines::given(file, "--file")?, file)?;
                save(gavel, self.id, version, &draft).await?
            }
            None if !is_here() => {
                let words = "there is no terminal for an editor; give the plan with --file";
                return Err(Usage(words.to_owned()).into());
            }
            None => match in_editor(gavel, &before, &mut Lines::new()).await? {
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
        let exit = tell(gavel, &edited, showing)?;
        let version = version(gavel, self.id, edited.plan_version).await?;
        output::note(&text::changes(version.version, &version.changes));
        Ok(exit)
    }
}

/// Replaces version `version` of the plan by an edited one.
async fn save(client: &Client, id: PlanningSessionId, version: u32, draft: &Value) -> anyhow::Result<Box<Session>> {
    client.put(&format!("v1/sessions/{id}/plan"), version, draft).await
}

/// Lets the user edit the plan until it is valid, or the user stops.
///
/// # Errors
/// The session does not wait for its confirmation; the editor fails; the plan was changed in between, or cannot be sent.
/// The text is kept, and a note says where.
pub(super) async fn in_editor(gavel: &Gavel, session: &Session, lines: &mut Lines) -> anyhow::Result<Edited> {
    let (id, version) = (session.session_id, session.plan_version);
    if !has_open_plan(session) {
        bail!(
            "the plan of session {id} cannot be edited: the session is {}",
            session.status
        );
    }
    let before = of(session)?;
    let name = format!("gavel-plan-{id}-v{version}-");
    let file = tempfile::Builder::new().prefix(&name).suffix(".json").tempfile();
    // Its owner alone can read it.
    let (mut file, path) = file
        .and_then(|file| Ok(file.keep()?))
        .context("no temporary file can be created")?;
    file.write_all(before.as_bytes())
        .with_context(|| format!("{} cannot be written", path.display()))?;
    let edited = until_valid(gavel, (id, version), &before, &path, lines).await;
    match &edited {
        // Left behind, it would only take space.
        Ok(Edited::Saved(_) | Edited::Unchanged) => drop(fs::remove_file(&path)),
        Ok(Edited::Kept) | Err(_) => output::note(&format!(
            "nothing was changed. Your text is kept in {0}; to send it: {1} --file {0} --if-version {version} {id}",
            path.display(),
            gavel.command("plan edit")
        )),
    }
    edited
}

async fn until_valid(
    client: &Client,
    (id, version): (PlanningSessionId, u32),
    before: &str,
    path: &Path,
    lines: &mut Lines,
) -> anyhow::Result<Edited> {
    loop {
        let text = edited(path).await?;
        if text == before {
            output::note(&format!("the text is unchanged; plan {version} remains"));
            return Ok(Edited::Unchanged);
        }
        let sent = match read_draft(&text, &path.display().to_string()) {
            Ok(draft) => save(client, id, version, &draft).await,
            Err(error) => Err(error),
        };
        match sent {
            Ok(edited) => return Ok(Edited::Saved(edited)),
            Err(error) if is_invalid(&error) => output::note(&format!("the plan is invalid: {error:#}")),
            Err(error) => return Err(error),
        }
        let again = lines.choose("Edit it again? [y]es, [n]o: ", &["yes", "no"]).await?;
        if !matches!(again, Some(("yes", _))) {
            return Ok(Edited::Kept);
        }
    }
}

/// Can the user correct it in the text?
fn is_invalid(error: &anyhow::Error) -> bool {
    error.is::<Usage>() || Refused::is_invalid_request(error)
}

/// The current plan, for an editor.
fn of(session: &Session) -> anyhow::Result<String> {
    let task = |task: &Task| DraftTask {
        id: Some(task.id),
        title: task.title.clone(),
        goal: task.goal.clone(),
        done_when: task.done_when.clone(),
        tools: task.tools.clone(),
    };
    let draft = Draft {
        summary: session.summary.clone(),
        tasks: session.plan.iter().map(task).collect(),
        assumptions: session.assumptions.clone(),
        risks: session.risks.clone(),
    };
    Ok(format!(
        "{}\n",
        serde_json::to_string_pretty(&serde_json::to_value(draft)?)?
    ))
}

/// Reads an edited text. The server checks the plan itself; this finds errors of JSON, with their line.
///
/// # Errors
/// It is no JSON object.
fn read_draft(text: &str, from: &str) -> anyhow::Result<Value> {
    let read: Result<Value, _> = serde_json::from_str(text);
    match read {
        Ok(draft) if draft.is_object() => Ok(draft),
        Ok(_) => Err(Usage(format!("{from}: is no JSON object with summary and tasks")).into()),
        Err(error) => Err(Usage(format!("{from}: is no JSON: {error}")).into()),
    }
}

#[cfg(test)]
mod draft_tests {
    use serde_json::json;

    use super::*;
    use crate::cli::tests::samples::sample;

    #[test]
    fn the_text_for_the_editor_is_a_draft_that_keeps_every_id() {
        let session = json!({
            "summary": "Tests first.", "assumptions": ["main builds"], "risks": [],
            "plan": [sample::<Task>(json!({"id": "t3", "title": "Write tests", "goal": "A failing test.", "doneWhen": "it fails",
                "tools": ["getFileContents"]}))],
        });
        let text = of(&sample(session)).unwrap();
        let draft: Draft = serde_json::from_str(&text).unwrap();
        assert_eq!(draft.tasks[0].id.unwrap().to_string(), "t3");
        assert_eq!(
            (draft.tasks[0].done_when.as_str(), draft.assumptions.len()),
            ("it fails", 1)
        );
        assert_eq!(read_draft(&text, "x").unwrap(), json!(draft));
    }

    #[test]
    fn an_error_of_json_names_its_line() {
        let error = read_draft("{\n \"summary\": x}", "plan.json").unwrap_err().to_string();
        assert!(
            error.starts_with("plan.json: is no JSON: ") && error.contains("line 2"),
            "{error}"
        );
        assert!(
            read_draft("[]", "-")
                .unwrap_err()
                .to_string()
                .contains("no JSON object")
        );
    }
}

/// Opens the file in the user's editor, and returns its text once the editor has ended.
///
/// # Errors
/// The editor cannot be started or fails; the file cannot be read.
async fn edited(path: &Path) -> anyhow::Result<String> {
    let editor = name(env::var("VISUAL").ok(), env::var("EDITOR").ok());
    // Ctrl-C is for the editor.
    let signals = Signals::listen()?;
    let status = command(&editor, path).status().await;
    drop(signals);
    let status = status.with_context(|| format!("the editor {editor:?} cannot be started; set EDITOR"))?;
    ensure!(status.success(), "the editor {editor:?} ended with {status}");
    fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))
}

/// `VISUAL`, else `EDITOR`, else what every system has.
fn name(visual: Option<String>, editor: Option<String>) -> String {
    let named = [visual, editor].into_iter().flatten();
    let mut named = named.filter(|name| !name.trim().is_empty());
    named.next().unwrap_or_else(|| "vi".to_owned())
}

/// The editor's name may have arguments, as in `code --wait`; a shell reads it, as it does for other programs.
fn command(editor: &str, path: &Path) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &format!("{editor} \"$@\""), editor]).arg(path);
    command
}

#[cfg(test)]
mod editor_tests {
    use super::*;

    #[test]
    fn the_visual_editor_comes_first_and_a_blank_one_is_none() {
        let named = |name: &str| Some(name.to_owned());
        assert_eq!(name(named("code --wait"), named("nano")), "code --wait");
        assert_eq!(name(named(" "), named("nano")), "nano");
        assert!(!name(None, None).is_empty());
    }

    #[tokio::test]
    async fn an_editor_with_arguments_gets_the_file_as_one_more() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a plan.json");
        fs::write(&path, "before").unwrap();
        let status = command("printf %s after >\"$1\"; :", &path).status().await.unwrap();
        assert!(status.success());
        assert_eq!(fs::read_to_string(&path).unwrap(), "after");
    }
}
