//! The conversation about a plan: each line says what to change, or is a command.

use anyhow::Context;

use super::edit::{self, Edited};
use super::follow::{exit, failed_refinement, has_open_plan, path, refined, tell};
use super::start::executed;
use super::{show, start, text};
use crate::api::planning::{ExecuteBody, Session};
use crate::cli::exit::Exit;
use crate::cli::gavel::Gavel;
use crate::cli::interrupt::Stopped;
use crate::cli::lines::{Lines, Next};
use crate::cli::output;
use crate::cli::runs::Showing;

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
            ["show", task] if is_task(task) => Self::ShowTask(task),
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

fn is_task(word: &str) -> bool {
    let number = word.strip_prefix('t');
    number.is_some_and(|number| !number.is_empty() && number.chars().all(|c| c.is_ascii_digit()))
}

/// How the conversation continues after a line.
enum Then {
    Next(Box<Session>),
    End(Exit),
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
        let next = lines.next("> ").await.context("standard input cannot be read")?;
        if !matches!(next, Next::Line(_)) {
            // The text typed last has not ended the terminal's line.
            output::note("");
        }
        let line = match next {
            Next::Line(line) => line,
            Next::Dropped => continue,
            Next::Stopped => return Ok(leave(gavel, &session, Exit::Interrupted)),
            Next::End => return Ok(leave(gavel, &session, exit(&session))),
        };
        let typed = Typed::of(&line);
        if typed == Typed::Quit {
            return Ok(leave(gavel, &session, exit(&session)));
        }
        match answer(gavel, &session, typed, &mut lines, showing).await {
            Ok(Then::Next(next)) => session = next,
            Ok(Then::End(exit)) => return Ok(exit),
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
) -> anyhow::Result<Then> {
    let id = session.session_id;
    let same = || Then::Next(Box::new(session.clone()));
    match typed {
        Typed::Nothing | Typed::Quit => Ok(same()),
        Typed::Help => {
            output::note(COMMANDS);
            Ok(same())
        }
        Typed::Execute => {
            let execute = ExecuteBody {
                plan_version: Some(session.plan_version),
                ..ExecuteBody::default()
            };
            Ok(Then::End(executed(gavel, id, &execute, showing).await?))
        }
        Typed::Show => {
            let now: Box<Session> = gavel.get(&path(id)).await?;
            output::line(&text::plan(&now))?;
            Ok(Then::Next(now))
        }
        Typed::ShowTask(task) => {
            match session.plan.iter().find(|known| known.id.to_string() == task) {
                Some(task) => output::line(&text::task(task, &[]))?,
                None => output::note(&format!("plan {} has no task {task}", session.plan_version)),
            }
            Ok(same())
        }
        Typed::Diff => {
            show::latest(gavel, id, session.plan_version).await?;
            Ok(same())
        }
        Typed::Edit => match edit::in_editor(gavel, session, Some(lines)).await? {
            Edited::Saved(edited) => {
                changes(gavel, session, &edited).await?;
                Ok(Then::Next(edited))
            }
            Edited::Unchanged | Edited::Kept => Ok(same()),
        },
        Typed::Cancel => {
            let cancelled = start::cancel(gavel, id, None).await?;
            Ok(Then::Next(Box::new(cancelled)))
        }
        Typed::Refinement(words) => match refined(gavel, id, words, showing).await? {
            Err(exit) => Ok(Then::End(exit)),
            Ok(planned) => {
                if failed_refinement(&planned).is_none() {
                    changes(gavel, session, &planned).await?;
                }
                Ok(Then::Next(planned))
            }
        },
    }
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

/// Says that the session continues, and how.
fn leave(gavel: &Gavel, session: &Session, exit: Exit) -> Exit {
    let (place, id, version) = (gavel.place.repeated(), &session.session_id, session.plan_version);
    output::note(&format!(
        "plan {version} can be confirmed until {}; to change it: gavel plan refine{place} {id}; to confirm it: \
         gavel plan execute{place} --plan-version {version} {id}; to end it: gavel plan cancel{place} {id}",
        session.confirm_by.unwrap_or(session.deadline)
    ));
    exit
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
