//! Counts over many rows: they equal what a naive count finds, wherever they are read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gavel::adapters::store::Store;
use gavel::api::stats::{StatsFrom, StatsSource};
use gavel::domain::decision::{DecisionType, Outcome, Usage};
use gavel::domain::histogram::Histogram;
use gavel::domain::ids::{TenantId, UserId};
use gavel::domain::tool::FailureCode;
use gavel::ports::records::{QueryError, Times};
use gavel::ports::stats::{QUARTER_US, Stats, StatsQuestion, Tally, Units};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::commits::Writes;
use crate::support::{T0, TestDb, closed, done, eventually, failed, intent, open_decision, tenant, tool, turn};

/// A row as the test knows it.
#[derive(Clone, Debug, Default)]
struct Row {
    at: i64,
    user: String,
    texts: BTreeMap<&'static str, Option<String>>,
    numbers: BTreeMap<&'static str, Option<i64>>,
}

impl Row {
    fn text(&self, field: &str) -> Option<&str> {
        self.texts[field].as_deref()
    }
}

const DECISION_FIELDS: &[&str] = &[
    "surface",
    "agent_id",
    "definition_hash",
    "requested_model",
    "model",
    "decision_type",
    "outcome_category",
    "intent",
];
const CALL_FIELDS: &[&str] = &["server", "tool", "tool_digest", "status", "error_code", "decided_by"];
const SUMS: &[&str] = &[
    "input_tokens",
    "cached_tokens",
    "cost_nano",
    "cost_missing",
    "own_us",
    "duration_us",
];
const CALL_SUMS: &[&str] = &["argument_bytes", "result_bytes", "duration_us"];
const LENGTHS: &[(&str, &str)] = &[
    ("duration_ms", "duration_us"),
    ("model_ms", "model_us"),
    ("tool_ms", "tool_us"),
    ("human_ms", "human_us"),
    ("own_ms", "own_us"),
];

/// Decisions of some hours, each with two calls. `from` begins the first quarter.
async fn fill(store: &Arc<Store>, from: i64, count: u32, decisions: &mut Vec<Row>, calls: &mut Vec<Row>) {
    for n in 0..count {
        let pick = |modulus: u32| ((n * 7 + n / 11) % modulus) as usize;
        let mut open = open_decision();
        open.user = UserId::parse(["ann", "bob"][pick(2)]).unwrap();
        open.surface = ["chat", "agent", "thread"][pick(3)];
        open.agent_id = [None, Some("clerk".into()), Some("planner".into())][pick(3)].clone();
        open.definition_hash = ["d1", "d2"][pick(2)].into();
        open.requested_model = ["m1", "m2"][pick(2)].into();
        // Some at the very edges of a quarter.
        open.created_at = from + i64::from(n % 40) * QUARTER_US + [0, 1, 450_000_000, QUARTER_US - 1][pick(4)];
        let mut of = vec![
            done(&intent(&open, 1)),
            failed(&intent(&open, 2), FailureCode::Timeout, "late"),
        ];
        for call in &mut of {
            call.open.created_at = open.created_at + i64::from(call.open.sequence) * 400_000_000;
            call.open.tool = Some(tool(["add_task", "list_tasks"][pick(2)]));
            call.duration_us = i64::from(n) * 1311;
        }
        for (call, status) in of.iter().zip(["completed", "failed"]) {
            let by = call.open.policy.as_ref().and_then(|policy| policy.by.as_deref());
            let is_done = status == "completed";
            calls.push(Row {
                at: call.open.created_at,
                user: open.user.to_string(),
                texts: BTreeMap::from([
                    ("server", Some("tasks".to_owned())),
                    ("tool", call.open.tool.as_ref().map(|tool| tool.name.to_string())),
                    ("tool_digest", Some("d1gest".to_owned())),
                    ("status", Some(status.to_owned())),
                    ("error_code", (!is_done).then(|| "timeout".to_owned())),
                    ("decided_by", by.map(str::to_owned)),
                ]),
                numbers: BTreeMap::from([
                    ("argument_bytes", Some(call.open.arguments.get().len() as i64)),
                    (
                        "result_bytes",
                        call.outcome.as_ref().ok().map(|data| data.get().len() as i64),
                    ),
                    ("duration_us", Some(call.duration_us)),
                ]),
            });
        }
        let mut decision = closed(open, of, false);
        decision.decision_type = DecisionType::ALL[pick(4)];
        decision.outcome = [Outcome::TaskCompleted, Outcome::ResponseGiven, Outcome::Deadline][pick(3)];
        decision.model = [Some("m1".into()), Some("m3".into()), None][pick(3)].clone();
        decision.intent = ["respond", "add_task"][pick(2)].into();
        decision.duration_us = i64::from(n) * 23_456 + 100;
        decision.times = Times {
            human_us: i64::from(n % 5) * 1000,
            model_us: i64::from(n) * 11_111,
            tool_us: i64::from(n % 3) * 77,
        };
        decision.usage = Usage {
            input_tokens: u64::from(n) * 3,
            cached_tokens: u64::from(n),
            ..Usage::default()
        };
        let mut of_model = turn();
        of_model.cost_nano = (n % 4 > 0).then_some(u64::from(n) * 1000);
        decision.turns = vec![of_model];
        let text = |text: &str| Some(text.to_owned());
        let (open, own) = (
            &decision.open,
            decision.duration_us - i64::from(n % 5) * 1000 - i64::from(n) * 11_111,
        );
        let cost = (n % 4 > 0).then_some(i64::from(n) * 1000);
        decisions.push(Row {
            at: open.created_at,
            user: open.user.to_string(),
            texts: BTreeMap::from([
                ("surface", text(open.surface)),
                ("agent_id", open.agent_id.as_deref().map(str::to_owned)),
                ("definition_hash", text(&open.definition_hash)),
                ("requested_model", text(&open.requested_model)),
                ("model", decision.model.as_deref().map(str::to_owned)),
                ("decision_type", text(decision.decision_type.as_str())),
                ("outcome_category", text(decision.outcome.as_str())),
                ("intent", text(&decision.intent)),
            ]),
            numbers: BTreeMap::from([
                ("input_tokens", Some(i64::from(n) * 3)),
                ("cached_tokens", Some(i64::from(n))),
                ("cost_nano", cost),
                ("cost_missing", cost.is_none().then_some(1)),
                ("duration_us", Some(decision.duration_us)),
                ("human_us", Some(i64::from(n % 5) * 1000)),
                ("model_us", Some(i64::from(n) * 11_111)),
                ("tool_us", Some(i64::from(n % 3) * 77)),
                ("own_us", Some(own - i64::from(n % 3) * 77)),
            ]),
        });
        store.close(decision).await.unwrap();
    }
}

/// Conditions that are joined: a field, whether it is one of the values.
type Conditions = Vec<(&'static str, bool, Option<String>)>;

fn render(conditions: &Conditions) -> String {
    let render = |(field, is, value): &(&str, bool, Option<String>)| {
        let op = if *is { "=" } else { "!=" };
        match value {
            Some(value) => format!("{field} {op} {value:?}"),
            None => format!("{field} {op} null"),
        }
    };
    conditions.iter().map(render).collect::<Vec<_>>().join(" AND ")
}

fn holds(conditions: &Conditions, row: &Row) -> bool {
    conditions
        .iter()
        .all(|(field, is, value)| (row.text(field) == value.as_deref()) == *is)
}

/// What is asked at random: the question, and the conditions of its filter and of its rate.
type Asked = (StatsQuestion, Conditions, Option<Conditions>);

fn asked(source: StatsSource, rows: &[Row], from: i64) -> BoxedStrategy<Asked> {
    let (fields, sums, lengths) = match source {
        StatsSource::Decisions => (DECISION_FIELDS, SUMS, LENGTHS),
        StatsSource::ToolInvocations => (CALL_FIELDS, CALL_SUMS, &LENGTHS[..1]),
    };
    let known: Vec<_> = rows.iter().flat_map(|row| row.texts.clone()).collect();
    let condition = (prop::sample::select(known), any::<bool>()).prop_map(|((field, value), is)| (field, is, value));
    let conditions = |most| prop::collection::vec(condition.clone(), 0..most);
    let some = |all: &[&'static str]| {
        prop::sample::subsequence(all.to_vec(), 0..=3.min(all.len()))
            .prop_map(|all| all.into_iter().map(str::to_owned).collect::<Vec<_>>())
    };
    let units = prop_oneof![
        Just(None),
        Just(Some(Units {
            quarters: 96,
            offsets: vec![(22, i64::MAX)]
        })),
        Just(Some(Units {
            quarters: 4,
            offsets: vec![(0, i64::MAX)]
        })),
        // Clocks were put back in between.
        Just(Some(Units {
            quarters: 96,
            offsets: vec![(8, from / QUARTER_US + 13), (4, i64::MAX)]
        })),
    ];
    let time = (-3..45_i64, -3..45_i64, prop::sample::select(vec![0, 1, 77_000_000])).prop_map(move |(a, b, odd)| {
        (
            from + a.min(b) * QUARTER_US + odd,
            from + a.max(b) * QUARTER_US + 2 * odd,
        )
    });
    let lengths: Vec<_> = lengths.iter().map(|(name, _)| *name).collect();
    let user = prop::option::weighted(0.1, Just(UserId::parse("ann").unwrap()));
    let parts = (time, some(fields), some(sums), some(&lengths), units, user);
    (parts, conditions(3), prop::option::of(conditions(3)))
        .prop_map(move |((time, by, sums, lengths, units, user), filter, rate)| {
            let question = StatsQuestion {
                source,
                time,
                filter: Some(render(&filter)),
                by,
                units,
                rates: rate.iter().map(render).collect(),
                sums,
                lengths,
                user,
            };
            (question, filter, rate)
        })
        .boxed()
}

fn naive(rows: &[Row], (question, filter, rate): &Asked) -> Vec<Tally> {
    let mut tallies = BTreeMap::<_, Tally>::new();
    let is_asked = |row: &&Row| {
        (question.time.0..question.time.1).contains(&row.at)
            && holds(filter, row)
            && question.user.as_ref().is_none_or(|user| row.user == user.as_str())
    };
    for row in rows.iter().filter(is_asked) {
        let quarter = row.at / QUARTER_US;
        let unit = question.units.as_ref().map(|units| {
            let offset = units.offsets.iter().find(|(_, until)| quarter < *until).unwrap().0;
            (quarter + offset) / units.quarters
        });
        let by: Vec<_> = question
            .by
            .iter()
            .map(|field| row.text(field).map(str::to_owned))
            .collect();
        let tally = tallies.entry((unit, by.clone())).or_insert_with(|| Tally {
            unit,
            by,
            rates: vec![0; question.rates.len()],
            sums: vec![0; question.sums.len()],
            lengths: vec![Histogram::default(); question.lengths.len()],
            ..Tally::default()
        });
        tally.count += 1;
        if let Some(rate) = rate {
            tally.rates[0] += u64::from(holds(rate, row));
        }
        for (sum, name) in tally.sums.iter_mut().zip(&question.sums) {
            *sum += row.numbers[name.as_str()].unwrap_or_default();
        }
        for (lengths, name) in tally.lengths.iter_mut().zip(&question.lengths) {
            let (_, us) = LENGTHS.iter().find(|(known, _)| known == name).unwrap();
            lengths.add(row.numbers[us].unwrap());
        }
    }
    tallies.into_values().collect()
}

/// Asks 167 questions about each log, and compares the answers. Returns where they were read, and how often.
async fn compare(store: &Arc<Store>, from: i64, decisions: &[Row], calls: &[Row]) -> BTreeMap<&'static str, u32> {
    let mut places = BTreeMap::new();
    for (source, rows) in [
        (StatsSource::Decisions, decisions),
        (StatsSource::ToolInvocations, calls),
    ] {
        let (tenant, places) = (tenant(), std::cell::RefCell::new(&mut places));
        let config = Config {
            failure_persistence: None,
            ..Config::with_cases(167)
        };
        let ran = TestRunner::new(config).run(&asked(source, rows, from), |asked| {
            let found = tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(store.tally(&tenant, &asked.0))
            });
            let mut found = found.map_err(|error| TestCaseError::fail(format!("{:?}: {error}", asked.0)))?;
            *places.borrow_mut().entry(found.from.as_str()).or_default() += 1;
            found.tallies.sort_by(|a, b| (a.unit, &a.by).cmp(&(b.unit, &b.by)));
            prop_assert_eq!(found.tallies, naive(rows, &asked), "{:?}", asked.0);
            prop_assert_eq!(found.open, 0);
            Ok(())
        });
        ran.unwrap();
    }
    places
}

/// Statistics equal a naive count: while nothing was counted before, once all was, and after later changes.
pub(crate) async fn statistics_equal_a_naive_count(db: TestDb) {
    let from = T0 / QUARTER_US * QUARTER_US;
    let (mut decisions, mut calls) = (Vec::new(), Vec::new());
    let store = db.open().await;
    fill(&store, from, 150, &mut decisions, &mut calls).await;
    compare(&store, from, &decisions, &calls).await;
    store.shutdown().await;

    // It counts when it starts.
    let store = db.open().await;
    eventually("all quarters are counted", async || {
        db.count("SELECT COUNT(*) FROM stats_dirty").await == 0
    })
    .await;
    let counted = db.count("SELECT SUM(n) FROM stats_quarter").await;
    assert_eq!(counted, 150);
    let places = compare(&store, from, &decisions, &calls).await;
    assert!(places["rollup"] > 50 && places["log"] > 50, "{places:?}");

    // Rows of counted quarters, and such that are changed there.
    fill(&store, from + 3 * QUARTER_US, 30, &mut decisions, &mut calls).await;
    db.run(
        "UPDATE decision_log SET outcome_category = 'ERROR:INTERNAL' WHERE intent = 'respond' AND input_tokens > 300",
    )
    .await;
    for row in &mut decisions {
        if row.text("intent") == Some("respond") && row.numbers["input_tokens"] > Some(300) {
            row.texts.insert("outcome_category", Some("ERROR:INTERNAL".to_owned()));
        }
    }
    compare(&store, from, &decisions, &calls).await;
    store.shutdown().await;
}

/// A count that runs while rows change counts nothing twice and misses nothing.
pub(crate) async fn what_changes_while_it_is_counted_counts_once(db: TestDb) {
    let from = T0 / QUARTER_US * QUARTER_US;
    let question = StatsQuestion {
        source: StatsSource::Decisions,
        time: (from, from + 60 * QUARTER_US),
        filter: None,
        by: vec![],
        units: None,
        rates: vec![],
        sums: vec![],
        lengths: vec![],
        user: None,
    };
    let store = db.open().await;
    let (mut written, mut counting) = (0, None);
    for round in 0..6 {
        // Another process counts at its start, beside the one that writes.
        counting = Some(tokio::spawn({
            let config = db.config();
            async move {
                let other = Store::open(config).await.unwrap();
                tokio::time::sleep(Duration::from_millis(150)).await;
                other.shutdown().await;
            }
        }));
        fill(&store, from, 15, &mut Vec::new(), &mut Vec::new()).await;
        written += 15;
        let found = store.tally(&tenant(), &question).await.unwrap();
        assert_eq!(
            (found.tallies[0].count, found.from),
            (written, StatsFrom::Rollup),
            "round {round}"
        );
    }
    counting.unwrap().await.unwrap();
    let last = db.open().await;
    eventually("all quarters are counted", async || {
        db.count("SELECT COUNT(*) FROM stats_dirty").await == 0
    })
    .await;
    assert_eq!(db.count("SELECT SUM(n) FROM stats_quarter").await, 90);
    assert_eq!(db.count("SELECT SUM(n) FROM tool_stats_quarter").await, 180);
    last.shutdown().await;
    store.shutdown().await;
}

/// A tenant's rows are its own, and a question that cannot be answered says what can.
pub(crate) async fn a_question_names_what_it_may_ask(db: TestDb) {
    let from = T0 / QUARTER_US * QUARTER_US;
    let store = db.open().await;
    fill(&store, from, 5, &mut Vec::new(), &mut Vec::new()).await;
    let good = StatsQuestion {
        source: StatsSource::Decisions,
        time: (from, from + 60 * QUARTER_US),
        filter: None,
        by: vec!["surface".to_owned()],
        units: None,
        rates: vec![],
        sums: vec![],
        lengths: vec![],
        user: None,
    };
    let other = TenantId::parse("other").unwrap();
    assert_eq!(store.tally(&other, &good).await.unwrap().tallies, []);
    let ask = |change: fn(&mut StatsQuestion)| {
        let mut question = good.clone();
        change(&mut question);
        let store = Arc::clone(&store);
        async move {
            match store.tally(&tenant(), &question).await {
                Err(QueryError::Invalid { field, detail }) => format!("{field}: {detail}"),
                other => panic!("{other:?}"),
            }
        }
    };
    // Texts of users are no groups.
    let by = ask(|question| question.by = vec!["message".to_owned()]).await;
    assert!(
        by.starts_with("by: found \"message\"; allowed are decision_type, "),
        "{by}"
    );
    assert!(!by.contains("response"), "{by}");
    let sums = ask(|question| question.sums = vec!["tokens".to_owned()]).await;
    assert!(
        sums.starts_with("measures: found \"tokens\"; allowed are input_tokens, "),
        "{sums}"
    );
    let rate = ask(|question| question.rates = vec!["outcome = \"x\"".to_owned()]).await;
    assert!(
        rate.starts_with("measures: rate \"outcome = \\\"x\\\"\": at character 1: "),
        "{rate}"
    );
    let hidden = ask(|question| {
        question.user = Some(UserId::parse("ann").unwrap());
        question.rates = vec!["error_detail:\"10.0\"".to_owned()];
    })
    .await;
    assert!(hidden.contains("is not shown in the rows of one user"), "{hidden}");
    store.shutdown().await;
}
