//! The conversation about a plan: each line says what to change, or is a command.

use super::edit::{self, Edited};
use super::follow::{Followed, choices, exit, failed_refinement, has_open_plan, path, refined, tell};
use super::start::executed;
use super::{show, start, text};
use crate::api::planning::{ExecuteBody, Session};
use crate::cli::exit::Exit;
use crate::cli::gavel::Gavel;
use crate::cli::interrupt::Stopped;
use crate::cli::lines::{Lines, Next};
use crate::cli::output;
use crate::cli::runs::Showing;
use crate::domain::plan::TaskId;

const COMMANDS: &str = "Say what to change, or: execute, show, show t2, diff, edit, cancel, quit";

/// What the user typed.
#[derive(Debug, PartialEq, Eq)]
enum Typed<'a> {
    Nothing,
    Show,
    ShowTask(&'a str),
    Diff,
    Edit,
    Cancel,
    Quit,
    Help,
    /// Confirms the version that was shown. No other text does.
    Execute,
    Refinement(&'a str),
}

impl<'a> Typed<'a> {
    /// A command is the whole line; any other text is a refinement.
    fn of(line: &'a str) -> Self {
        let line = line.trim();
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] => Self::Nothing,
            ["show"] => Self::Show,
            ["show", task] if TaskId::parse(task).is_some() => Self::ShowTask(task),
            ["diff"] => Self::Diff,
            ["edit"] => Self::Edit,
            ["cancel"] => Self::Cancel,
            ["quit" | "exit" | "q" | "/quit"] => Self::Quit,
            ["help" | "?" | "/help"] => Self::Help,
            ["execute"] => Self::Execute,
            _ => Self::Refinement(line),
        }
    }
}

/// Shows the plan, and changes it until the user quits or the session has ended. An error does not end the
/// conversation. Ctrl-C drops the typed text, or ends the conversation; the session continues.
///
/// # Errors
/// The terminal, or the session, can no longer be read.
pub(super) async fn hold(gavel: &Gavel, mut session: Box<Session>, showing: Showing) -> anyhow::Result<Exit> {
    let id = session.session_id;
    let mut lines = Lines::new();
    output::line(&text::plan(&session))?;
    output::note(COMMANDS);
    loop {
        if !has_open_plan(&session) {
            return tell(gavel, &session, showing);
        }
        let line = match lines.next("> ").await? {
            Next::Line(line) => line,
            Next::Dropped => continue,
            Next::Stopped => {
                choices(gavel, &session);
                return Ok(Exit::Interrupted);
            }
            Next::End => "quit".to_owned(),
        };
        match answer(gavel, &session, Typed::of(&line), &mut lines, showing).await {
            Ok(Ok(next)) => session = next,
            Ok(Err(exit)) => return Ok(exit),
            Err(error) if error.is::<Stopped>() => return Err(error),
            Err(error) => {
                output::note(&format!("error: {error:#}"));
                // It may have changed elsewhere, or ended. A version can be confirmed only after it was shown.
                let now: Box<Session> = gavel.get(&path(id)).await?;
                if now.plan_version != session.plan_version && has_open_plan(&now) {
                    output::line(&text::plan(&now))?;
                }
                session = now;
            }
        }
    }
}

/// Does what the user typed.
async fn answer(
    gavel: &Gavel,
    session: &Session,
    typed: Typed<'_>,
    lines: &mut Lines,
    showing: Showing,
) -> anyhow::Result<Followed> {
    let id = session.session_id;
    match typed {
        Typed::Nothing => {}
        Typed::Quit => {
            choices(gavel, session);
            return Ok(Err(exit(session)));
        }
        Typed::Help => output::note(COMMANDS),
        Typed::Execute => {
            let execute = ExecuteBody {
                plan_version: Some(session.plan_version),
                ..ExecuteBody::default()
            };
            return Ok(Err(executed(gavel, id, &execute, showing).await?));
        }
        Typed::Show => {
            let now: Box<Session> = gavel.get(&path(id)).await?;
            output::line(&text::plan(&now))?;
            return Ok(Ok(now));
        }
        Typed::ShowTask(task) => match session.plan.iter().find(|known| known.id.to_string() == task) {
            Some(task) => output::line(&text::task(task, &[]))?,
            None => output::note(&format!("plan {} has no task {task}", session.plan_version)),
        },
        Typed::Diff => drop(show::differ(gavel, id, None, session.plan_version, false).await?),
        Typed::Edit => {
            if let Edited::Saved(edited) = edit::in_editor(gavel, session, lines).await? {
                changes(gavel, session, &edited).await?;
                return Ok(Ok(edited));
            }
        }
        Typed::Cancel => return Ok(Ok(Box::new(start::cancel(gavel, id, None).await?))),
        Typed::Refinement(words) => {
            let refined = refined(gavel, id, words, showing).await?;
            if let Ok(planned) = &refined
                && failed_refinement(planned).is_none()
            {
                changes(gavel, session, planned).await?;
            }
            return Ok(refined);
        }
    }
    Ok(Ok(Box::new(session.clone())))
}

/// Prints what the current version changed, if it is a new one.
async fn changes(gavel: &Gavel, before: &Session, now: &Session) -> anyhow::Result<()> {
    if now.plan_version > before.plan_version + 1 {
        // Others changed it as well.
        output::line(&text::plan(now))?;
    } else if now.plan_version > before.plan_version {
        let version = show::version(gavel, now.session_id, now.plan_version).await?;
        output::line(&text::changes(version.version, &version.changes))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_line_is_a_command() {
        for (line, typed) in [
            ("  ", Typed::Nothing),
            ("show", Typed::Show),
            (" show  t2 ", Typed::ShowTask("t2")),
            ("diff", Typed::Diff),
            ("cancel", Typed::Cancel),
            ("execute", Typed::Execute),
            ("show tests first", Typed::Refinement("show tests first")),
            ("show the README", Typed::Refinement("show the README")),
            ("cancel t3", Typed::Refinement("cancel t3")),
            ("edit the README last", Typed::Refinement("edit the README last")),
            (" quit t2 ", Typed::Refinement("quit t2")),
            // P-205: no other text confirms a plan.
            (" execute ", Typed::Execute),
            ("Execute", Typed::Refinement("Execute")),
            ("execute it", Typed::Refinement("execute it")),
            ("execute t1 first", Typed::Refinement("execute t1 first")),
            ("yes", Typed::Refinement("yes")),
            ("ok, execute", Typed::Refinement("ok, execute")),
        ] {
            assert_eq!(Typed::of(line), typed, "{line:?}");
        }
    }
}
