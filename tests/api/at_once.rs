//! Concurrent answers of several people to one approval request or one in-doubt action: one answer counts, and the
//! other callers are rejected.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::agents::processes::Place;
use crate::audit::{audit_is_whole, rows};
use crate::console::rig::{ALL, Office, WORKSPACE, asks, key, keys, mail};
use crate::crash::Process;
use crate::gemini::Gemini;
use crate::harness::client;

/// A caller: the key, and the user on whose behalf it acts.
type Person = (&'static str, &'static str);

const ANN: Person = ("desk", "ann");
/// Approvers.
const BOSS: Person = ("chief", "boss");
const KIM: Person = ("chief", "kim");
const LOU: Person = ("chief", "lou");

/// An office and the processes that serve it: two on PostgreSQL, one on SQLite.
struct Served {
    place: Place,
    office: Office,
    processes: Vec<Process>,
    _gemini: Gemini,
}

impl Served {
    async fn on(postgres: bool, call: Value) -> Self {
        let place = Place::on(postgres).await;
        place.agent("workspace.md", WORKSPACE);
        let office = Office::start().await;
        let gemini = Gemini::scripted(asks(vec![("gmail_send", call)])).await;
        let keys = keys(&ALL);
        let settings = [
            ("GAVEL_RUNS_AGENT", "workspace"),
            ("GAVEL_AUTH_MODE", "api_key"),
            ("GAVEL_AUTH_KEYS", keys.as_str()),
        ];
        let mut processes = Vec::new();
        for _ in 0..if postgres { 2 } else { 1 } {
            processes.push(place.start_beside(&gemini, &office.mcp(), &settings).await);
        }
        Self {
            place,
            office,
            processes,
            _gemini: gemini,
        }
    }

    /// The url of the n-th process, in turn.
    fn url(&self, n: usize) -> String {
        self.processes[n % self.processes.len()].url.clone()
    }

    /// Sends a prompt for this user; the run waits for approval.
    async fn says(&self, user: &'static str) -> Value {
        let prompt = json!({"prompt": "E-mail Ann that I am late."});
        let (status, run) = post(self.url(0), ("web", user), "run".to_owned(), prompt).await;
        assert_eq!(
            (status, &run["status"]),
            (200, &json!("awaiting_confirmation")),
            "{run}"
        );
        run
    }

    /// Sends all answers at once and returns each response. Four people answer at each process in turn.
    async fn at_once<W: Copy + Send + 'static>(
        &self,
        path: &str,
        words: Vec<(Person, W)>,
        body: impl Fn(W) -> Value,
    ) -> Vec<((Person, W), u16, Value)> {
        let together = Arc::new(Barrier::new(words.len()));
        let mut sent = JoinSet::new();
        for (n, (person, word)) in words.into_iter().enumerate() {
            let (url, path, body, together) = (self.url(n / 4), path.to_owned(), body(word), Arc::clone(&together));
            sent.spawn(async move {
                together.wait().await;
                let (status, reported) = post(url, person, path, body).await;
                ((person, word), status, reported)
            });
        }
        sent.join_all().await
    }
}

async fn post(url: String, (name, user): Person, path: String, body: Value) -> (u16, Value) {
    let request = client()
        .post(format!("{url}/api/agent/{path}"))
        .header("authorization", format!("Bearer {}", key(name)))
        .header("x-gavel-user", user);
    let answer = request.json(&body).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

/// Exactly one answer counts, and every caller that sent the same one receives it. Returns this answer and its
/// response.
#[track_caller]
fn the_one_that_counts<W: Copy + PartialEq + std::fmt::Debug>(
    answers: &[((Person, W), u16, Value)],
    late: &str,
) -> ((Person, W), Value) {
    let (winner, _, reported) = answers
        .iter()
        .find(|(_, status, _)| *status == 200)
        .unwrap_or_else(|| panic!("no answer counts: {answers:?}"));
    for (word, status, body) in answers {
        if word == winner {
            assert_eq!(
                (*status, body),
                (200, reported),
                "{word:?}: one answer, the same for every caller that gave it"
            );
        } else {
            assert_eq!((*status, &body["code"]), (409, &json!(late)), "{word:?}: {body}");
        }
    }
    (*winner, reported.clone())
}

/// of fifty concurrent answers to two processes one counts, with one effect at most. The same answer by the
/// same caller gets the same response, at either process. All others are too late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_fifty_concurrent_answers_to_two_processes_one_counts() {
    const WORDS: [&str; 3] = ["approve_once", "reject", "approve_and_always_allow_recipient"];
    let served = Served::on(true, mail()).await;
    // Otherwise the first answer to arrive might always be of one kind.
    for (round, user) in ["ann", "ben", "cleo", "dan", "eve", "fred"].into_iter().enumerate() {
        let run = served.says(user).await;
        let action = run["actions"][0]["actionId"].as_str().unwrap();
        let before = served.office.names().len();
        let words = (0..50).map(|n| {
            let person = [("desk", user), BOSS, KIM, LOU][n % 4];
            (person, WORDS[(n / 4 + round) % 3])
        });
        let body = |decision| json!({"approvalId": run["actions"][0]["approvalId"], "decision": decision});
        let answers = served.at_once("approvals/resolve", words.collect(), body).await;
        let ((person, decision), reported) = the_one_that_counts(&answers, "already_resolved");
        let (effects, state) = match decision {
            "reject" => (0, "rejected"),
            _ => (1, "completed"),
        };
        assert_eq!(reported["actions"][0]["state"], state, "{reported}");
        assert_eq!(served.office.names().len() - before, effects, "{person:?}: {decision}");
        let record = &served.place.record;
        let row = format!("SELECT resolution, resolved_by FROM agent_action WHERE id = '{action}'");
        let by = format!("service:{} for user:{}", person.0, person.1);
        assert_eq!(rows(record, &row).await, [[decision.to_owned(), by.clone()]]);
        let entered = format!("SELECT actor FROM audit WHERE kind = 'approval_resolved' AND action_id = '{action}'");
        assert_eq!(rows(record, &entered).await, [[by]], "one answer is entered");
        let grants = format!("SELECT id FROM approval_grant WHERE user_id = '{user}'");
        let given = usize::from(decision == WORDS[2]);
        assert_eq!(rows(record, &grants).await.len(), given, "{decision}");
    }
    audit_is_whole(&served.place.record, "fifty answers").await;
}

/// A call whose answer is lost.
fn lost() -> Value {
    json!({"to": ["bob@example.org"], "subject": "lost", "body": "Hello."})
}

impl Served {
    /// An in-doubt call of ann's: its run, and the path that settles it.
    async fn in_doubt(&self) -> (Value, String) {
        let run = self.says("ann").await;
        let yes = json!({"approvalId": run["actions"][0]["approvalId"], "decision": "approve_once"});
        let (status, reported) = post(self.url(1), ANN, "approvals/resolve".to_owned(), yes).await;
        assert_eq!((status, &reported["state"]), (200, &json!("in_doubt")), "{reported}");
        let action = run["actions"][0]["actionId"].as_str().unwrap();
        (reported.clone(), format!("actions/{action}/settle"))
    }

    /// The in-doubt action was settled once, by this person, and its call was not sent again.
    async fn is_settled(&self, run: &Value, by: Person, happened: bool, sent: usize) {
        let record = &self.place.record;
        let action = run["actions"][0]["actionId"].as_str().unwrap();
        let by = format!("service:{} for user:{}", by.0, by.1);
        let state = if happened { "completed" } else { "failed" };
        let row = format!(
            "SELECT a.status, a.settled_by, t.status FROM agent_action a JOIN tool_invocation_log t ON t.id = a.id \
             WHERE a.id = '{action}'"
        );
        assert_eq!(
            rows(record, &row).await,
            [[state, by.as_str(), state].map(str::to_owned)]
        );
        let entered = format!("SELECT actor FROM audit WHERE kind = 'doubt_settled' AND action_id = '{action}'");
        assert_eq!(rows(record, &entered).await, [[by]], "one settlement is entered");
        let said = format!("SELECT body FROM thread_message WHERE action_id = '{action}' AND role = 'settlement'");
        assert_eq!(rows(record, &said).await.len(), 1, "and the thread shows one");
        assert_eq!(self.office.names().len(), sent, "nothing is sent again");
    }
}

/// an in-doubt action is settled once. The same report by the same person gets the same response. Another report,
/// or another person's, is too late and changes nothing.
async fn a_second_settlement_changes_nothing(postgres: bool) {
    let served = Served::on(postgres, lost()).await;
    for (sent, (first, others, happened)) in [
        (ANN, [BOSS, KIM], true),
        (ANN, [BOSS, KIM], false),
        (BOSS, [ANN, KIM], true),
        (BOSS, [ANN, KIM], false),
    ]
    .into_iter()
    .enumerate()
    {
        let (run, path) = served.in_doubt().await;
        let settle = |n: usize, person: Person, happened: bool| {
            post(served.url(n), person, path.clone(), json!({ "happened": happened }))
        };
        let (status, reported) = settle(0, first, happened).await;
        assert_eq!(status, 200, "{reported}");
        let state = if happened { "completed" } else { "failed" };
        assert_eq!(reported["actions"][0]["state"], state, "{reported}");
        for n in 0..4 {
            assert_eq!(
                settle(n, first, happened).await,
                (200, reported.clone()),
                "the same again"
            );
            for (person, word) in [
                (first, !happened),
                (others[0], happened),
                (others[0], !happened),
                (others[1], happened),
                (others[1], !happened),
            ] {
                let (status, late) = settle(n, person, word).await;
                assert_eq!(
                    (status, &late["code"]),
                    (409, &json!("not_in_doubt")),
                    "{person:?} {word}: {late}"
                );
            }
            served.is_settled(&run, first, happened, sent + 1).await;
        }
    }
    audit_is_whole(&served.place.record, "settled twice").await;
}

/// of twenty concurrent and contradictory settlements, one counts.
async fn of_twenty_concurrent_settlements_one_counts(postgres: bool) {
    let served = Served::on(postgres, lost()).await;
    for round in 0..4 {
        let (run, path) = served.in_doubt().await;
        // Each person sends both outcomes.
        let words = (0..20).map(|n| ([ANN, BOSS, KIM, LOU][n % 4], (n / 8 + round) % 2 == 0));
        let answers = served
            .at_once(&path, words.collect(), |happened| json!({ "happened": happened }))
            .await;
        let ((person, happened), reported) = the_one_that_counts(&answers, "not_in_doubt");
        let state = if happened { "completed" } else { "failed" };
        assert_eq!(reported["actions"][0]["state"], state, "{reported}");
        served.is_settled(&run, person, happened, round + 1).await;
    }
    audit_is_whole(&served.place.record, "twenty words").await;
}

macro_rules! on_both {
    ($($name:ident => $test:ident;)*) => {
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$test(false).await;
            })*
        }
        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$test(true).await;
            })*
        }
    };
}

on_both! {
    a_doubt_that_is_settled_stays_as_the_first_word_has_it => a_second_settlement_changes_nothing;
    of_twenty_words_on_a_doubt_one_counts => of_twenty_concurrent_settlements_one_counts;
}
