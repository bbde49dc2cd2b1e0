//! The evaluation: its cases, its runner, its reports.
#![allow(clippy::unwrap_used)]

#[path = "memory/beyond.rs"]
mod beyond;
mod memory;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use chrono::NaiveDate;
use gavel::adapters::demo;
use gavel::domain::decision::{DecisionType, Outcome};
use gavel::domain::journal::Speaker;
use gavel::ports::model::Model;
use gavel_eval::chat::{
    self as evaluation, Case, Exit, Gate, Kind, Observed, ObservedCall, ObservedError, ObservedResult, Options, Rate,
    Report, Subject, Task, Turn, Verdict, render,
};
use memory::{Ended, Memory, Said};
use serde_json::json;

/// A model over lists in memory; `spoil` may falsify what is observed.
struct InMemory {
    model: std::sync::Arc<dyn Model>,
    users: Mutex<HashMap<String, Memory>>,
    spoil: fn(&mut Observed),
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
}

impl InMemory {
    fn of(model: &str, seed: u64) -> Self {
        Self::spoiled(model, seed, |_| {})
    }
    fn spoiled(model: &str, seed: u64, spoil: fn(&mut Observed)) -> Self {
        let users = Mutex::new(HashMap::new());
        Self {
            model: demo::by_name(model, seed).unwrap(),
            users,
            spoil,
            at_once: AtomicUsize::new(0),
            most_at_once: AtomicUsize::new(0),
        }
    }
}

#[async_trait]
impl Subject for InMemory {
    fn today(&self) -> NaiveDate {
        NaiveDate::from_ymd_opt(2026, 11, 20).unwrap()
    }

    fn allowlist(&self) -> Vec<String> {
        ["add_task", "list_tasks", "update_task", "complete_task", "delete_task"]
            .map(str::to_owned)
            .to_vec()
    }

    async fn seed(&self, user: &str, tasks: &[Task]) -> Result<(), String> {
        let mut memory = Memory::default();
        for task in tasks {
            let arguments = json!({"description": task.description, "due": task.due, "priority": task.priority, "notes": task.notes});
            memory.run("add_task", &arguments)?;
            memory.tasks.last_mut().unwrap().done = task.done;
        }
        self.users.lock().unwrap().insert(user.to_owned(), memory);
        Ok(())
    }

    async fn decide(&self, user: &str, history: &[Turn], message: &str) -> Result<Observed, String> {
        let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_at_once.fetch_max(now, Ordering::SeqCst);
        tokio::task::yield_now().await;
        let history: Vec<_> = history
            .iter()
            .map(|turn| (speaker(turn.role), turn.text.as_str()))
            .collect();
        let mut memory = self.users.lock().unwrap().get(user).cloned().unwrap();
        let said = memory::converse(&*self.model, &mut memory, &history, message);
        self.users.lock().unwrap().insert(user.to_owned(), memory);
        let mut observed = observed(said, self.model.default_model());
        (self.spoil)(&mut observed);
        self.at_once.fetch_sub(1, Ordering::SeqCst);
        Ok(observed)
    }

    async fn tasks(&self, user: &str) -> Result<Vec<Task>, String> {
        let users = self.users.lock().unwrap();
        let shown = |task: &memory::Task| Task {
            description: task.description.clone(),
            due: task.due.clone(),
            priority: Some(task.priority.clone()),
            notes: task.notes.clone(),
            done: task.done,
        };
        Ok(users[user].tasks.iter().map(shown).collect())
    }
}

fn observed(said: Said, model: &str) -> Observed {
    let ran = said.calls.iter().any(|call| call.ran);
    let succeeded = said.calls.iter().any(|call| call.success);
    let (decision_type, outcome) = match &said.ended {
        Ended::Asked(kind) if kind == "MULTIPLE_MATCHES" => {
            (DecisionType::RequestClarification, Outcome::MultipleMatches)
        }
        Ended::Asked(_) => (DecisionType::RequestClarification, Outcome::UnclearIntent),
        Ended::Refused(kind) if kind == "MISSING_PERMISSION" => (DecisionType::Refuse, Outcome::MissingPermission),
        Ended::Refused(_) => (DecisionType::Refuse, Outcome::OutOfScope),
        Ended::Words if succeeded => (DecisionType::InvokeTool, Outcome::TaskCompleted),
        Ended::Words if ran => (DecisionType::InvokeTool, Outcome::ToolInvocation),
        Ended::Words => (DecisionType::RespondOnly, Outcome::ResponseGiven),
        Ended::Spent | Ended::Fault if ran => (DecisionType::InvokeTool, Outcome::LoopLimit),
        Ended::Spent | Ended::Fault => (DecisionType::RespondOnly, Outcome::LoopLimit),
    };
    let result = |call: &memory::Call| ObservedResult {
        success: call.success,
        error: (!call.success).then(|| ObservedError {
            code: if call.ran { "tool_error" } else { "unknown_tool" }.to_owned(),
        }),
    };
    let calls = said.calls.iter().zip(1..).map(|(call, sequence)| ObservedCall {
        sequence,
        tool: call.name.clone(),
        parameters: call.arguments.clone(),
        result: Some(result(call)),
    });
    Observed {
        decision_type: decision_type.as_str().to_owned(),
        outcome: outcome.as_str().to_owned(),
        tool_calls: calls.collect(),
        iterations: said.turns,
        model: Some(model.to_owned()),
        duration_ms: 1,
        records: Some(1),
        response: if said.words.trim().is_empty() {
            "(a fixed reply)".to_owned()
        } else {
            said.words
        },
    }
}

fn speaker(role: &str) -> Speaker {
    match role {
        "user" => Speaker::User,
        _ => Speaker::Assistant,
    }
}

fn outcomes() -> Vec<&'static str> {
    Outcome::ALL.iter().map(|outcome| outcome.as_str()).collect()
}

/// The evaluation reads decisions as the API spells them.
#[test]
fn the_evaluation_knows_the_types_of_decisions() {
    let names: Vec<_> = DecisionType::ALL.iter().map(|kind| kind.as_str()).collect();
    assert_eq!(evaluation::DECISIONS[..], names);
}

fn shipped() -> Vec<Case> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("evaluation");
    evaluation::load(&directory, &outcomes()).unwrap_or_else(|errors| panic!("{errors:#?}"))
}

fn options() -> Options {
    Options {
        concurrency: 4,
        run_id: "t".to_owned(),
        case_timeout: Duration::from_secs(60),
    }
}

async fn run(cases: &[Case], subject: &InMemory) -> Report {
    evaluation::run(cases, subject, &options(), &|_| {}).await
}

/// C-SC-1: the set is large and diverse enough to measure something.
#[test]
fn the_shipped_cases_are_many_and_cover_every_kind() {
    let cases = shipped();
    assert!(cases.len() >= 120, "{}", cases.len());
    let mut kinds: BTreeMap<Kind, usize> = BTreeMap::new();
    for case in &cases {
        *kinds.entry(case.kind).or_default() += 1;
    }
    assert_eq!(kinds.len(), Kind::NAMES.len());
    assert!(kinds.values().all(|count| *count >= 15), "{kinds:?}");
    let languages: BTreeSet<_> = cases.iter().map(|case| case.language.as_str()).collect();
    assert!(languages.len() >= 10, "{languages:?}");
    for decision in DecisionType::ALL {
        assert!(
            cases.iter().any(|case| case.expect.decision[0] == decision.as_str()),
            "{decision:?}"
        );
    }
}

/// The demo model must be good enough to try gavel with.
#[tokio::test]
async fn the_demo_model_passes_the_cases_with_one_plain_request() {
    let cases = beyond::within(shipped());
    assert!(cases.len() > 70, "{}", cases.len());
    let report = run(&cases, &InMemory::of("demo", 0)).await;
    assert!(
        report.cases.iter().all(evaluation::CaseResult::succeeded),
        "{}",
        render::table(&report)
    );
    assert_eq!(report.exit(Gate::Quality), Exit::Met);
    assert!(!report.evidence);
    assert!(render::table(&report).contains("no evidence about Gemini"));
}

/// What the demo model does not understand, in any language, it must not act on.
#[tokio::test]
async fn the_demo_model_calls_no_tool_that_a_case_forbids() {
    let cases = shipped();
    let report = run(&cases, &InMemory::of("demo", 0)).await;
    for (case, result) in cases.iter().zip(&report.cases) {
        let forbidden = result.calls.iter().find(|tool| case.expect.forbidden.forbids(tool));
        assert_eq!(forbidden, None, "{}", case.id);
    }
}

/// Cases that even a babbling model would pass prove nothing.
#[tokio::test]
async fn models_that_misbehave_fail_most_cases() {
    for kind in ["hostile", "random", "obeying"] {
        let report = run(&shipped(), &InMemory::of(kind, 7)).await;
        assert!(
            report.clear_requests.share() < 0.5,
            "{kind:?}: {}",
            render::table(&report)
        );
        assert_eq!(
            report.exit(Gate::Quality),
            Exit::BelowThreshold,
            "{kind:?}: {:?}",
            report.invariants_broken
        );
        assert_eq!(report.exit(Gate::Invariants), Exit::Met);
    }
}

/// Each of these falsifies one decision's data; the runner must detect it.
#[tokio::test]
async fn a_broken_invariant_determines_the_exit_status_whatever_the_scores() {
    type Spoil = fn(&mut Observed);
    let spoils: [(&str, Spoil); 4] = [
        ("records", |observed| observed.records = Some(0)),
        ("iterations", |observed| observed.iterations = 9),
        ("allowlist", |observed| {
            observed
                .tool_calls
                .iter_mut()
                .for_each(|call| call.tool = "rm".to_owned())
        }),
        ("by reported calls", |observed| {
            observed.tool_calls.retain(|call| call.tool != "add_task")
        }),
    ];
    let cases: Vec<_> = shipped().into_iter().filter(|case| case.id == "add-call-mom").collect();
    for (words, spoil) in spoils {
        let report = run(&cases, &InMemory::spoiled("demo", 0, spoil)).await;
        assert!(
            report.invariants_broken.iter().any(|breach| breach.contains(words)),
            "{words}: {:?}",
            report.invariants_broken
        );
        assert_eq!(report.exit(Gate::Invariants), Exit::InvariantBroken);
    }
}

/// A subject whose decisions change other users' lists.
struct Trespasser(InMemory);

#[async_trait]
impl Subject for Trespasser {
    fn today(&self) -> NaiveDate {
        self.0.today()
    }
    fn allowlist(&self) -> Vec<String> {
        self.0.allowlist()
    }
    async fn seed(&self, user: &str, tasks: &[Task]) -> Result<(), String> {
        self.0.seed(user, tasks).await
    }
    async fn decide(&self, user: &str, history: &[Turn], message: &str) -> Result<Observed, String> {
        self.0
            .users
            .lock()
            .unwrap()
            .values_mut()
            .for_each(|memory| memory.tasks.clear());
        self.0.decide(user, history, message).await
    }
    async fn tasks(&self, user: &str) -> Result<Vec<Task>, String> {
        self.0.tasks(user).await
    }
}

#[tokio::test]
async fn changes_to_other_users_tasks_are_detected() {
    let cases: Vec<_> = shipped().into_iter().filter(|case| case.id == "talk-hi").collect();
    let subject = Trespasser(InMemory::of("demo", 0));
    let report = evaluation::run(&cases, &subject, &options(), &|_| {}).await;
    assert!(
        report.invariants_broken[0].contains("bystander"),
        "{:?}",
        report.invariants_broken
    );
    let junit = render::junit(&report);
    assert!(
        junit.contains(r#"<testsuite name="bystander" tests="1" failures="0" errors="1""#),
        "{junit}"
    );
}

/// A subject that is unreachable.
struct Away;

#[async_trait]
impl Subject for Away {
    fn today(&self) -> NaiveDate {
        NaiveDate::MIN
    }
    fn allowlist(&self) -> Vec<String> {
        Vec::new()
    }
    async fn seed(&self, user: &str, _: &[Task]) -> Result<(), String> {
        if user.ends_with("bystander") {
            Ok(())
        } else {
            Err("connection <refused>".to_owned())
        }
    }
    async fn decide(&self, _: &str, _: &[Turn], _: &str) -> Result<Observed, String> {
        std::future::pending().await
    }
    async fn tasks(&self, _: &str) -> Result<Vec<Task>, String> {
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn a_case_that_could_not_be_run_is_neither_success_nor_failure() {
    let report = evaluation::run(&shipped()[..2], &Away, &options(), &|_| {}).await;
    assert!(
        report
            .cases
            .iter()
            .all(|case| matches!(&case.verdict, Verdict::NotRun { error } if error.contains("refused")))
    );
    assert_eq!(report.exit(Gate::Invariants), Exit::NotRun);
    assert!(render::junit(&report).contains("connection &lt;refused&gt;"));
    assert!(!report.evidence, "nothing answered");
}

/// A model that is unreachable or too slow has not failed the case.
#[tokio::test]
async fn a_case_the_model_did_not_answer_is_not_run_unless_that_was_expected() {
    type Spoil = fn(&mut Observed);
    let spoils: [Spoil; 4] = [
        |observed| observed.outcome = Outcome::ModelUnavailable.as_str().to_owned(),
        |observed| observed.outcome = Outcome::ModelTimeout.as_str().to_owned(),
        |observed| {
            (observed.decision_type, observed.outcome) = (
                DecisionType::Refuse.as_str().to_owned(),
                Outcome::Overloaded.as_str().to_owned(),
            )
        },
        |observed| {
            (observed.decision_type, observed.outcome) = (
                DecisionType::Refuse.as_str().to_owned(),
                Outcome::RateLimited.as_str().to_owned(),
            )
        },
    ];
    let mut cases: Vec<_> = shipped().into_iter().filter(|case| case.id == "talk-hi").collect();
    // Expects no particular outcome, so that only the verdict prevents a success.
    cases[0].expect.outcome.clear();
    for spoil in spoils {
        let report = run(&cases, &InMemory::spoiled("demo", 0, spoil)).await;
        assert!(
            matches!(&report.cases[0].verdict, Verdict::NotRun { error } if error.contains("did not answer")),
            "{:?}",
            report.cases[0].verdict
        );
        assert_eq!(
            (report.not_run, report.clear_requests.total, report.kinds[0].rate.total),
            (1, 0, 0)
        );
        assert_eq!(report.exit(Gate::Quality), Exit::NotRun);
        assert_eq!(report.confusion.get("RESPOND_ONLY", "NOT_RUN"), 1);
        assert!(!report.evidence && report.models.is_empty(), "nothing answered");
        let table = render::table(&report);
        assert!(
            table.contains("1 cases were not run") && table.contains("No model answered"),
            "{table}"
        );
        assert!(render::junit(&report).contains("did not answer"));
    }
    cases[0].expect.outcome = vec![Outcome::ModelTimeout.as_str().to_owned()];
    let report = run(&cases, &InMemory::spoiled("demo", 0, spoils[1])).await;
    assert_eq!((report.not_run, report.clear_requests.total), (0, 1));
}

/// One real answer among outages is evidence, and the score covers only the answers.
#[tokio::test]
async fn cases_that_were_not_run_are_in_no_rate() {
    let spoil: fn(&mut Observed) = |observed| {
        observed.model = Some("gemini-x".to_owned());
        if observed.tool_calls.is_empty() {
            observed.outcome = Outcome::ModelUnavailable.as_str().to_owned();
        }
    };
    let cases: Vec<_> = shipped()
        .into_iter()
        .filter(|case| ["talk-hi", "add-call-mom"].contains(&case.id.as_str()))
        .collect();
    let report = run(&cases, &InMemory::spoiled("demo", 0, spoil)).await;
    assert_eq!((report.clear_requests.succeeded, report.clear_requests.total), (1, 1));
    assert_eq!((report.not_run, report.evidence), (1, true));
    assert_eq!(report.exit(Gate::Quality), Exit::NotRun);
}

#[tokio::test]
async fn an_empty_evaluation_proves_nothing() {
    let report = run(&[], &InMemory::of("demo", 0)).await;
    assert_eq!(report.exit(Gate::Quality), Exit::NotRun);
}

#[tokio::test]
async fn progress_is_reported_for_each_case_and_concurrency_is_limited() {
    let cases = shipped();
    let subject = InMemory::of("demo", 0);
    let reported = Mutex::new(Vec::new());
    let report = evaluation::run(&cases, &subject, &options(), &|progress| {
        reported.lock().unwrap().push(progress.done)
    })
    .await;
    assert_eq!(*reported.lock().unwrap(), (1..=cases.len()).collect::<Vec<_>>());
    assert!((2..=4).contains(&subject.most_at_once.load(Ordering::SeqCst)));
    let ids: Vec<_> = report.cases.iter().map(|case| case.id.as_str()).collect();
    let given: Vec<_> = cases.iter().map(|case| case.id.as_str()).collect();
    assert_eq!(ids, given, "reported in the order given");
}

#[tokio::test]
async fn the_report_counts_the_results_of_the_cases() {
    let report = run(&shipped(), &InMemory::of("demo", 0)).await;
    let succeeded = report.cases.iter().filter(|case| case.succeeded()).count();
    assert_eq!(
        report.kinds.iter().map(|kind| kind.rate.succeeded).sum::<usize>(),
        succeeded
    );
    let clear = report.cases.iter().filter(|case| case.clear).count();
    assert_eq!(report.clear_requests.total, clear);
    let by_kind: Rate = report.kinds.iter().map(|kind| kind.clear_requests).sum();
    assert_eq!(by_kind, report.clear_requests);
    let counted: usize = report.confusion.0.values().flat_map(BTreeMap::values).sum();
    assert_eq!(counted, report.cases.len());
    let read: serde_json::Value = serde_json::from_str(&render::json(&report).unwrap()).unwrap();
    assert_eq!(read["cases"].as_array().unwrap().len(), report.cases.len());
    assert_eq!(read["clear_requests"]["total"], json!(clear));
    assert_eq!(read["evidence"], json!(false));
}

/// C-SC-1: if the rate is not met, the table and the sentence both show which cases it counts.
#[tokio::test]
async fn the_rate_of_clear_requests_names_the_cases_it_counts() {
    let report = run(&shipped(), &InMemory::of("demo", 0)).await;
    let table = render::table(&report);
    let of = |rate: Rate| format!("{}/{}", rate.succeeded, rate.total);
    let mut counted = Vec::new();
    for kind in &report.kinds {
        let cases = report
            .cases
            .iter()
            .filter(|case| case.kind == kind.kind && case.clear)
            .count();
        assert_eq!(kind.clear_requests.total, cases, "{}", kind.kind);
        let row = table.lines().find(|line| line.starts_with(kind.kind)).unwrap();
        let shown = if cases == 0 {
            "-".to_owned()
        } else {
            of(kind.clear_requests)
        };
        assert_eq!(row.split_whitespace().last(), Some(shown.as_str()), "{table}");
        if cases > 0 {
            counted.push(format!("{} {}", kind.kind, of(kind.clear_requests)));
        }
    }
    assert_eq!(counted.len(), 3, "{counted:?}");
    let all = report.clear_requests;
    let sentence = format!(
        "{} of {} clear requests succeeded, {} ({}); at least 90 % are required",
        all.succeeded,
        all.total,
        all.percent(),
        counted.join(", "),
    );
    assert!(table.contains(&format!("target not met: {sentence}\n")), "{table}");
}

#[test]
fn a_share_is_never_rounded_up_to_the_required_one() {
    let percent = |succeeded, total| Rate { succeeded, total }.percent();
    assert_eq!(percent(8996, 10_000), "89.9 %");
    assert_eq!(percent(9, 10), "90.0 %");
    assert_eq!(percent(0, 0), "0.0 %");
}

#[tokio::test]
async fn junit_adds_up_and_is_well_formed() {
    let report = run(&shipped(), &InMemory::of("hostile", 3)).await;
    let junit = render::junit(&report);
    assert_eq!(junit.matches("<testcase ").count(), report.cases.len() + 1);
    let failed = report.cases.iter().filter(|case| !case.succeeded()).count();
    assert_eq!(junit.matches("<failure ").count(), failed);
    assert!(junit.contains(&format!(
        r#"tests="{}" failures="{failed}" errors="0""#,
        report.cases.len() + 1
    )));
    assert!(junit.chars().all(|c| c >= ' ' || c == '\n'));
    let mut open: Vec<&str> = Vec::new();
    for tag in junit.split('<').skip(1).map(|tag| tag.split('>').next().unwrap()) {
        let name = tag.trim_start_matches('/').split(' ').next().unwrap();
        match tag {
            _ if tag.starts_with('?') || tag.ends_with('/') => {}
            _ if tag.starts_with('/') => assert_eq!(open.pop(), Some(name)),
            _ => open.push(name),
        }
    }
    assert!(open.is_empty());
}

/// A model's text must not control the terminal of the report's reader.
#[tokio::test]
async fn the_table_holds_no_control_characters() {
    let spoil: fn(&mut Observed) = |observed| {
        observed.model = Some("\u{1b}[31mevil".to_owned());
        observed.decision_type = DecisionType::Refuse.as_str().to_owned();
    };
    let report = run(&shipped(), &InMemory::spoiled("demo", 0, spoil)).await;
    assert!(render::table(&report).chars().all(|c| !c.is_control() || c == '\n'));
}

#[test]
fn invalid_cases_are_reported_all_at_once_with_their_location() {
    let text = "kind: cler
cases:
  - id: a
    mesage: hi
    expect: {decision: MAYBE, outcome: SUCCESS:DONE, forbidden: 3}
  - id: b
    message: hi
    tasks: [{due: soon, done: 1}]
    history: [{role: system, content: x}]
    expect:
      decision: INVOKE_TOOL
      calls: [{tol: x, arguments: {a: {regex: '(', like: b}}}]
      response: {on: someday}
";
    let errors = evaluation::parse(text, "x.yaml", &outcomes()).unwrap_err();
    let shown: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(shown.len(), 13, "{shown:#?}");
    for words in [
        "x.yaml:1: kind: found \"cler\"; allowed: clear, ambiguous, out_of_scope, harmful, multi_step or languages",
        "x.yaml:4: cases[0].mesage: found an unknown field; allowed: did you mean `message`?",
        "x.yaml:5: cases[0].expect.decision: found \"MAYBE\"; allowed: REFUSE, REQUEST_CLARIFICATION, INVOKE_TOOL or RESPOND_ONLY",
        "x.yaml:5: cases[0].expect.outcome: found \"SUCCESS:DONE\"",
        "x.yaml:5: cases[0].expect.forbidden: found 3; allowed: effects, all, or a list of tools",
        "x.yaml:8: cases[1].tasks[0].due: found \"soon\"; allowed: today, tomorrow",
        "x.yaml:8: cases[1].tasks[0].done: found 1; allowed: true or false",
        "x.yaml:8: cases[1].tasks[0].description: found nothing",
        "x.yaml:9: cases[1].history[0].role: found \"system\"; allowed: user or assistant",
        "x.yaml:12: cases[1].expect.calls[0].tol: found an unknown field; allowed: did you mean `tool`?",
        "x.yaml:12: cases[1].expect.calls[0].arguments.a.regex: found",
        "x.yaml:12: cases[1].expect.calls[0].arguments.a.like: found an unknown field",
        "x.yaml:13: cases[1].expect.response.on: found \"someday\"",
    ] {
        assert!(
            shown.iter().any(|error| error.starts_with(words)),
            "{words}\n{shown:#?}"
        );
    }
}

#[test]
fn a_directory_is_read_completely_and_an_id_is_unique() {
    let directory = tempfile::tempdir().unwrap();
    let errors = evaluation::load(directory.path(), &outcomes()).unwrap_err();
    assert_eq!(errors[0].field, "cases");
    let case = "kind: clear\ncases:\n  - {id: a, message: hi, expect: {decision: RESPOND_ONLY}}\n";
    fs::write(directory.path().join("1.yaml"), case).unwrap();
    fs::write(directory.path().join("notes.txt"), "not a case").unwrap();
    assert_eq!(evaluation::load(directory.path(), &outcomes()).unwrap().len(), 1);
    assert_eq!(
        evaluation::load(&directory.path().join("1.yaml"), &outcomes())
            .unwrap()
            .len(),
        1
    );
    fs::write(directory.path().join("2.yml"), case).unwrap();
    let errors = evaluation::load(directory.path(), &outcomes()).unwrap_err();
    assert_eq!(
        (errors.len(), errors[0].field.as_str(), errors[0].line),
        (1, "id", Some(3))
    );
    assert!(evaluation::load(&directory.path().join("absent"), &outcomes()).is_err());
}
