//! Runs the cases against the subject.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};

use super::case::Case;
use super::report::{CaseResult, Report, Verdict};
use super::subject::{Observed, Subject, Task};
use super::{invariants, score};

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many cases run at once; at least one.
    pub concurrency: usize,
    /// The prefix of each case's user id. A subject that keeps its tasks needs a new prefix for each evaluation.
    pub run_id: String,
    /// The longest a case may take; then it counts as not run.
    pub case_timeout: Duration,
}

/// A case is complete.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Completed cases, including this one.
    pub done: usize,
    /// The result of this case.
    pub result: &'a CaseResult,
}

/// Runs every case, each for a user of its own, and reports in the order of the cases. A bystander's tasks must be
/// unchanged afterwards: no decision may touch another user's tasks.
pub async fn run(
    cases: &[Case],
    subject: &dyn Subject,
    options: &Options,
    progress: &(dyn Fn(Progress<'_>) + Sync),
) -> Report {
    let bystander = Bystander::seed(subject, &options.run_id).await;
    let began = Instant::now();
    let mut results: Vec<(usize, CaseResult)> = Vec::with_capacity(cases.len());
    let mut running = stream::iter(cases.iter().enumerate())
        .map(|(n, case)| async move {
            let user = format!("{}-{n}", options.run_id);
            (n, one(case, subject, &user, options.case_timeout).await)
        })
        .buffer_unordered(options.concurrency.max(1));
    while let Some((n, result)) = running.next().await {
        progress(Progress {
            done: results.len() + 1,
            result: &result,
        });
        results.push((n, result));
    }
    drop(running);
    results.sort_by_key(|(n, _)| *n);
    let results = results.into_iter().map(|(_, result)| result).collect();
    let elapsed = began.elapsed();
    Report::new(results, bystander.check(subject).await, elapsed)
}

async fn one(case: &Case, subject: &dyn Subject, user: &str, most: Duration) -> CaseResult {
    let today = subject.today();
    let seeds: Vec<_> = case.tasks.iter().map(|task| on_the_day(task, today)).collect();
    let work = async {
        subject
            .seed(user, &seeds)
            .await
            .map_err(|error| format!("the tasks could not be seeded: {error}"))?;
        let observed = subject.decide(user, &case.history, &case.message).await?;
        let after = subject
            .tasks(user)
            .await
            .map_err(|error| format!("the tasks could not be read: {error}"))?;
        Ok::<_, String>((observed, after))
    };
    let outcome = match tokio::time::timeout(most, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("no decision within {} s", most.as_secs())),
    };
    match outcome {
        Ok((observed, after)) => {
            let mut broken = invariants::of_decision(&observed, &subject.allowlist());
            broken.extend(invariants::of_effects(&observed, &seeds, &after));
            let differs = score::differences(case, &observed, &seeds, &after, today);
            case_result(case, observed, differs, broken)
        }
        Err(error) => CaseResult::of(case, Verdict::NotRun { error }, None, Vec::new()),
    }
}

fn case_result(case: &Case, observed: Observed, differs: Vec<String>, broken: Vec<String>) -> CaseResult {
    let verdict = if is_no_answer(&observed.outcome) && !case.expect.outcome.contains(&observed.outcome) {
        let error = format!("the model did not answer: {}", observed.outcome);
        Verdict::NotRun { error }
    } else if differs.is_empty() {
        Verdict::Succeeded
    } else {
        Verdict::Failed { differences: differs }
    };
    CaseResult::of(case, verdict, Some(observed), broken)
}

/// Outcomes that say nothing about the model's decision.
fn is_no_answer(outcome: &str) -> bool {
    [
        "ERROR:MODEL_UNAVAILABLE",
        "ERROR:MODEL_TIMEOUT",
        "REFUSAL:OVERLOADED",
        "REFUSAL:RATE_LIMITED",
    ]
    .contains(&outcome)
}

fn on_the_day(task: &super::case::SeedTask, today: chrono::NaiveDate) -> Task {
    Task {
        description: task.description.clone(),
        due: task.due.map(|day| day.resolve(today).to_string()),
        priority: task.priority.clone(),
        notes: task.notes.clone(),
        done: task.done,
    }
}

/// A user without cases.
struct Bystander {
    user: String,
    before: Result<Vec<Task>, String>,
}

impl Bystander {
    async fn seed(subject: &dyn Subject, run_id: &str) -> Self {
        let user = format!("{run_id}-bystander");
        let task = |description: &str| Task {
            description: description.to_owned(),
            ..Task::default()
        };
        let tasks = [
            task("water the neighbour's plants"),
            task("buy groceries"),
            task("call mom"),
        ];
        let before = match subject.seed(&user, &tasks).await {
            Ok(()) => subject.tasks(&user).await,
            Err(error) => Err(error),
        };
        Self { user, before }
    }

    /// Compares its tasks with those before; returns a sentence if they changed.
    async fn check(self, subject: &dyn Subject) -> Option<String> {
        match (self.before, subject.tasks(&self.user).await) {
            (Ok(before), Ok(after)) if before == after => None,
            (Ok(before), Ok(after)) => Some(format!("a bystander's tasks changed from {before:?} to {after:?}")),
            (Err(error), _) | (_, Err(error)) => Some(format!("a bystander's tasks could not be watched: {error}")),
        }
    }
}
