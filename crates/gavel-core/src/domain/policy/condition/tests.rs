//! Which expressions are accepted, what they return, and what they may cost.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{Facts, SessionFacts};
use super::*;
use crate::domain::address::recipients;
use crate::domain::argument_path::ArgumentPath;

fn holds(source: &str, arguments: &Value) -> Result<bool, String> {
    let to = [ArgumentPath::parse("to").unwrap()];
    let checked = recipients(&to, arguments, 50, || false).unwrap();
    Condition::parse(source).unwrap().holds(&mut Evaluation::new(Facts {
        server: "google",
        tool: "gmail_send",
        user: "ann",
        agent: None,
        surface: "chat",
        arguments,
        recipients: Some(&checked.recipients),
        session: SessionFacts::default(),
    }))
}

#[test]
fn an_expression_looks_at_the_whole_call() {
    let arguments = json!({"to": ["a@x.org", "Bo <b@X.org>"], "n": 7, "f": 0.5, "deep": {"list": [1, 2]}});
    for (source, expected) in [
        ("recipients.all(r, r.endsWith('@x.org'))", true),
        ("recipients.exists(r, r.matches('^b@'))", true),
        ("recipients.size() > 2", false),
        ("'a@x.org' in recipients", true),
        ("user == 'ann' && agent == '' && surface == 'chat'", true),
        ("server + '__' + tool == 'google__gmail_send'", true),
        ("arguments.n + 1 == 8 && arguments.n - 8 < 0", true),
        ("arguments.f < 1.0", true),
        ("has(arguments.cc)", false),
        ("!has(arguments.cc) || size(arguments.cc) == 0", true),
        ("arguments.deep.list.map(n, n * 2)[1] == 4", true),
        ("arguments['to'].size() == 2", true),
    ] {
        assert_eq!(holds(source, &arguments), Ok(expected), "{source}");
    }
}

#[test]
fn what_cannot_be_evaluated_is_an_error() {
    for (source, says) in [
        ("arguments.subject == 'x'", "subject"),
        ("arguments.n.startsWith('x')", ""),
        ("arguments.n", "not true or false"),
        ("arguments.n / 0 == 1", ""),
        ("arguments.n.matches('x')", "expects a text"),
        ("int('x') == 1", ""),
    ] {
        let error = holds(source, &json!({"n": 7})).unwrap_err();
        assert!(error.contains(says), "{source}: {error}");
    }
    let without = Facts {
        server: "s",
        tool: "t",
        user: "u",
        agent: None,
        surface: "chat",
        arguments: &json!({}),
        recipients: None,
        session: SessionFacts::default(),
    };
    // With no recipients, every `all` would be true.
    let all = Condition::parse("recipients.all(r, r.endsWith('@x.org'))").unwrap();
    assert!(
        all.holds(&mut Evaluation::new(without))
            .unwrap_err()
            .contains("name no `recipients`")
    );
}

/// A rule can name the session of a call and its repository. Outside of sessions they are blank, as `agent` is on the
/// chat surface.
#[test]
fn a_condition_reads_the_planning_session() {
    let arguments = json!({});
    let of = |session| Facts {
        server: "github",
        tool: "createIssue",
        user: "ann",
        agent: Some("task_worker"),
        surface: "planning",
        arguments: &arguments,
        recipients: None,
        session,
    };
    let holds = |source: &str, session| {
        Condition::parse(source)
            .unwrap()
            .holds(&mut Evaluation::new(of(session)))
    };
    let session = SessionFacts {
        id: "0199c4e0",
        owner: "acme",
        repo: "dates",
    };
    let all = "session.id == '0199c4e0' && session.owner.startsWith('ac') && session.repo in ['dates']";
    assert_eq!(holds(all, session), Ok(true));
    assert_eq!(holds("['a', 'b'].exists(session, session == 'b')", session), Ok(true));
    let outside = SessionFacts::default();
    assert_eq!(holds(all, outside), Ok(false));
    assert_eq!(holds("session.repo == '' && session.id == ''", outside), Ok(true));
}

#[test]
fn names_that_do_not_exist_are_found_before_any_call() {
    for (source, says) in [
        ("argument.to == 'x'", "names `argument`; variables are arguments"),
        ("recipients.all(r, s == 'x')", "names `s`"),
        ("session.name == 'x'", "names `session.name`; variables are arguments"),
        ("size(session) == 3", "names `session`; variables are"),
        ("session['repo'] == 'x'", "names `session`; variables are"),
        ("recipients.all(r, true) && r == 'x'", "names `r`"),
        ("recipients.every(r, true)", "calls `every`|names `r`"),
        ("now() > 1", "calls `now`"),
        ("user ==", "is not a CEL expression (line 1, column"),
        ("", "is not a CEL expression"),
        ("T{a: 1} == 1", "struct"),
    ] {
        let error = Condition::parse(source).unwrap_err();
        assert!(says.split('|').any(|says| error.contains(says)), "{source}: {error}");
        assert!(!error.contains('\n'), "{error:?}");
    }
    for (open, close) in [
        ("(", ")"),
        ("[", "]"),
        ("!", ""),
        ("-", ""),
        ("true ? ", " : false"),
        ("size(", ")"),
    ] {
        let levels = 4000 / (open.len() + close.len());
        let deep = format!("{}true{}", open.repeat(levels), close.repeat(levels));
        let parsed = Condition::parse(&deep);
        assert!(parsed.is_err() || open.len() == 1, "{open}");
    }
    let chain = format!("{}1 == 21", "1 + ".repeat(20));
    assert_eq!(holds(&chain, &json!({})), Ok(true));
    assert!(Condition::parse(&format!("{}1 == 31", "1 + ".repeat(30))).is_err());
    let long = format!("user == '{}'", "x".repeat(MOST_BYTES));
    assert!(Condition::parse(&long).unwrap_err().contains("bytes"));
}

/// The error for a list of this many numbers and a text of this many bytes.
fn refusal(source: &str, numbers: usize, bytes: usize) -> Option<String> {
    let list: Vec<usize> = (0..numbers).collect();
    holds(source, &json!({"list": list, "text": "x".repeat(bytes)})).err()
}

#[test]
fn conditions_of_honest_calls_are_evaluated_however_large_the_call_is() {
    for (source, numbers, bytes) in [
        ("!recipients.exists(r, r == 'x')", 0, 8 << 20),
        ("!arguments.text.contains('secret')", 10, 8 << 20),
        ("!arguments.text.matches('(?i)secret|confidential')", 10, 4 << 20),
        ("arguments.list.all(a, a >= 0 && a < 1000000)", 20_000, 1 << 20),
        ("arguments.list.filter(a, a > 10).size() > 10", 20_000, 1 << 20),
        ("arguments.list.all(a, a in [1, 2, 3] || a >= 0)", 10_000, 1 << 20),
        ("arguments.list.all(a, arguments.list.exists(b, a == b))", 200, 1 << 20),
    ] {
        assert_eq!(refusal(source, numbers, bytes), None, "{source}");
    }
}

/// The CPU time of this thread: other tests that run at the same time do not count.
fn on_cpu() -> std::time::Duration {
    let read = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    std::time::Duration::from_nanos(read.split(' ').next().unwrap().parse().unwrap())
}

/// Promise: bounded faults. Arguments of any size take bounded time. Conditions that are not rejected are evaluated, so
/// this test takes long if the estimate is too low.
#[test]
fn the_worst_conditions_are_refused_before_they_take_long() {
    let body = (0..40).map(|n| format!("a != {n}")).collect::<Vec<_>>().join(" && ");
    let numbers = (0..60).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let pairs = (0..80).map(|n| format!("{n}: {n}")).collect::<Vec<_>>().join(",");
    let doubling = ".map(x, x + x)".repeat(3);
    let sources = [
        "arguments.list.all(a, a >= 0)".to_owned(),
        "arguments.list.all(a, arguments.list.all(b, a + b >= 0))".to_owned(),
        format!("arguments.list.all(a, {body} || true)"),
        format!("arguments.list.all(a, arguments.list.all(b, {body} || true))"),
        format!("[arguments.list]{doubling}[0].all(a, a >= 0)"),
        format!("[arguments.text]{doubling}[0].size() > 0"),
        "arguments.list.map(a, arguments.list).all(l, l.all(a, a >= 0))".to_owned(),
        "arguments.list.map(a, arguments.text).all(t, t.size() >= 0)".to_owned(),
        "arguments.list.all(a, arguments.text.contains(string(a)) || true)".to_owned(),
        "arguments.list.all(a, arguments.text + 'x' != arguments.text)".to_owned(),
        "arguments.list.all(a, string(arguments) == 'x' || true)".to_owned(),
        "arguments.list.all(a, !(a in arguments.list) || true)".to_owned(),
        "arguments.list.all(a, arguments == arguments)".to_owned(),
        "arguments.list.all(a, arguments.list < 'x' || true)".to_owned(),
        "arguments.list.all(a, arguments.text.matches('x*y') || true)".to_owned(),
        "arguments.list.all(a, [arguments, arguments].size() == 2)".to_owned(),
        "arguments.list.exists_one(a, arguments.text == arguments.text)".to_owned(),
        "arguments.list.filter(a, arguments.list.exists(b, b == a)).map(a, [a, a]).size() >= 0".to_owned(),
        "!arguments.text.matches('[xy]*x[xy]{40}z')".to_owned(),
        "arguments.list.map(a, a > 3, {'k': arguments}).size() >= 0".to_owned(),
        format!(
            "[{}].all(t, t.contains('y') || true)",
            vec!["arguments.text"; 200].join(",")
        ),
        // Not one entry of these loops comes from the call.
        format!("![{numbers}].all(a, [{numbers}].all(b, a + b >= 0))"),
        format!("{{{pairs}}}.all(a, [{numbers}].all(b, a + b >= 0))"),
    ];
    let mut refused = 0;
    for source in &sources {
        for (numbers, bytes) in [
            (10, 1000),
            (300, 30_000),
            (1000, 10_000),
            (3000, 1000),
            (100, 300_000),
            (30_000, 10),
            (10, 4 << 20),
        ] {
            let start = on_cpu();
            let error = refusal(source, numbers, bytes);
            let took = on_cpu() - start;
            // The limit is 50 ms; tests run without optimization.
            assert!(
                took.as_millis() < 3000,
                "{source} took {took:?} with {numbers} numbers, {bytes} bytes"
            );
            refused += usize::from(error.is_some_and(|error| error.contains("steps")));
        }
    }
    assert!(refused > sources.len(), "{refused}");
}

#[test]
fn all_rules_of_a_call_share_their_steps() {
    let list: Vec<u32> = (0..10_000).collect();
    let arguments = json!({"list": list});
    let facts = Facts {
        server: "s",
        tool: "t",
        user: "u",
        agent: None,
        surface: "chat",
        arguments: &arguments,
        recipients: None,
        session: SessionFacts::default(),
    };
    let condition = Condition::parse("arguments.list.all(a, a >= 0)").unwrap();
    let mut evaluation = Evaluation::new(facts);
    let answered = (0..1000)
        .take_while(|_| condition.holds(&mut evaluation).is_ok())
        .count();
    assert!((2..100).contains(&answered), "{answered}");
}

#[test]
fn a_condition_that_has_no_bound_is_refused_when_it_is_read() {
    for (source, says) in [
        (
            "arguments.a.all(a, arguments.b.all(b, arguments.c.all(c, a + b > c)))",
            "more than 2 loops",
        ),
        ("arguments.a.matches(arguments.b)", "not a text in quotes"),
        ("arguments.a.matches('(')", "unclosed group"),
        ("arguments.a.matches('(\\\\w{100}){100}')", "size"),
    ] {
        let error = Condition::parse(source).unwrap_err();
        assert!(error.contains(says), "{source}: {error}");
    }
    let large = format!(
        "[arguments]{}.size() == 1",
        ".map(x, [x, x, x, x, x, x, x, x])".repeat(8)
    );
    let error = Condition::parse(&large).unwrap_err();
    assert!(error.contains("more than 4 loops in a row"), "{error}");
    let numbers = (0..600).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let written = format!("[{numbers}].all(a, [1, 2, 3].all(b, a + b >= 0))");
    let error = Condition::parse(&written).unwrap_err();
    assert!(error.contains("steps even for a call"), "{error}");
    let passes = vec!["arguments.a.all(a, arguments.b.all(b, arguments.c != arguments.d))"; 40].join(" && ");
    let error = Condition::parse(&passes).unwrap_err();
    assert!(error.contains("steps even for a call"), "{error}");
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-e]", inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Every way in which a value can cause an error, once for each operator and function.
const SUSPICIOUS: [&str; 21] = [
    "arguments.a == arguments.b",
    "arguments.a < arguments.b",
    "arguments.a + arguments.b == arguments.a",
    "arguments.a * arguments.b == 1",
    "arguments.a / arguments.b == 1",
    "arguments.a % arguments.b == 1",
    "-arguments.a == 1",
    "arguments.a in arguments.b",
    "arguments.a[arguments.b] == 1",
    "arguments.a.all(x, x == arguments.b)",
    "size(arguments.a) == 1",
    "int(arguments.a) == 1",
    "uint(arguments.a) == 1u",
    "double(arguments.a) == 1.0",
    "string(arguments.a) == ''",
    "arguments.a.matches('^x')",
    "arguments.a.contains(arguments.b)",
    "arguments.a.b.c == 1",
    "has(arguments.a.b)",
    "arguments.a ? true : false",
    "arguments.a.filter(x, x == 1).size() == 0",
];

static CONDITIONS: LazyLock<Vec<Condition>> = LazyLock::new(|| {
    SUSPICIOUS
        .iter()
        .map(|source| Condition::parse(source).unwrap())
        .collect()
});

proptest! {
    /// Any arguments of a model lead to a result or an error.
    #[test]
    fn no_arguments_break_an_evaluation(a in json_value(), b in json_value()) {
        let arguments = json!({"a": a, "b": b});
        let facts = Facts {
            server: "s", tool: "t", user: "u", agent: None, surface: "chat", arguments: &arguments, recipients: None,
            session: SessionFacts::default(),
        };
        for condition in CONDITIONS.iter() {
            let found = condition.holds(&mut Evaluation::new(facts));
            prop_assert!(found != Err(BROKE_DOWN.to_owned()), "{condition:?} of {arguments}");
        }
    }
}
