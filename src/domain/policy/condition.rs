//! The condition of a rule: an expression in CEL, the Common Expression Language.
//!
//! The operator writes the expression, and a model writes the arguments that it reads. So anything that cannot be
//! evaluated, is not a boolean, or would take too long is an error, and the policy denies the call. Names are checked
//! when the file is parsed; otherwise only the first call would reveal a misspelled variable.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock, OnceLock};

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue};
use cel::common::types::{CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt};
use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;
use cel::extractors::This;
use cel::{Context, Env, ExecutionError, Program, Value as Cel};
use regex::{Regex, RegexBuilder};
use serde_json::Value;

use super::cost::{self, MOST_STEPS, Size, Sizes};
use super::{AGENTS, Facts};

/// The longest expression, in bytes.
pub(super) const MOST_BYTES: usize = 4096;

/// The deepest expression, in levels of its tree. Evaluating each level takes much stack.
const MOST_LEVELS: usize = 24;

/// The most nested loops. A third level has no legitimate use, and multiplies the cost of each call.
const MOST_LOOPS: u32 = 2;

/// Stack of the parser, which itself stops at some hundred levels.
const PARSER_STACK: usize = 64 << 20;

/// Size limit of a compiled pattern, in bytes. `(?i)` and `\w` are far below; counted repetitions of classes reach it.
const MOST_PATTERN: usize = 64 << 10;

/// Below this size, a pattern reads 64 bytes in [`PATTERN_STEPS`]. A larger one takes proportionally more steps.
const PLAIN_PATTERN: usize = 8 << 10;

/// Steps for a pattern to read 64 bytes, including their copy.
const PATTERN_STEPS: u64 = 4;

/// The error of an evaluation that panics.
const BROKE_DOWN: &str = "its evaluation failed unexpectedly";

/// The name of `matches` in a parsed expression: its second argument is the number of a compiled pattern.
pub(super) const MATCHES: &str = "@matches";

/// The variables of an expression.
const VARIABLES: [&str; 7] = ["arguments", "recipients", "user", "agent", "surface", "server", "tool"];

/// The functions of an expression, besides operators.
const FUNCTIONS: [&str; 10] = [
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "size",
    "int",
    "uint",
    "double",
    "string",
    "type",
];

static STANDARD: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// A parsed expression.
pub struct Condition {
    source: String,
    expression: IdedExpr,
    patterns: Arc<[Regex]>,
    /// Steps to read 64 bytes, for each pattern.
    pattern_steps: Vec<u64>,
    uses_recipients: bool,
}

impl Condition {
    /// Parses an expression.
    ///
    /// # Errors
    /// What is invalid, in a single line.
    pub fn parse(source: &str) -> Result<Self, String> {
        if source.len() > MOST_BYTES {
            return Err(format!("has {} bytes; allowed: at most {MOST_BYTES}", source.len()));
        }
        let source = source.to_owned();
        let parsed = std::thread::Builder::new()
            .stack_size(PARSER_STACK)
            .spawn(move || parse(source))
            .map_err(|error| format!("cannot be parsed now: {error}"))?
            .join();
        parsed.unwrap_or_else(|_| Err("is not a CEL expression".to_owned()))
    }

    /// Whether it reads the recipients of a call.
    pub(super) fn uses_recipients(&self) -> bool {
        self.uses_recipients
    }

    /// Whether it is true for a call.
    ///
    /// # Errors
    /// Why it cannot be evaluated.
    pub(super) fn holds(&self, evaluation: &mut Evaluation<'_>) -> Result<bool, String> {
        if self.uses_recipients && evaluation.given.facts.recipients.is_none() {
            return Err(match evaluation.given.facts.server {
                AGENTS => "a call of an agent has no `recipients`".to_owned(),
                _ => "the settings of this tool name no `recipients`".to_owned(),
            });
        }
        let steps = self.steps(evaluation.sizes());
        evaluation.take(steps)?;
        let mut context = Context::with_env(Arc::clone(&STANDARD));
        context.set_variable_resolver(&evaluation.given);
        if !self.patterns.is_empty() {
            let patterns = Arc::clone(&self.patterns);
            let matches = move |This(text): This<Cel>, pattern: i64| is_match(&patterns, &text, pattern);
            context
                .add_function(MATCHES, matches)
                .map_err(|error| format!("cannot be evaluated: {error}"))?;
        }
        match catch_unwind(AssertUnwindSafe(|| Cel::resolve(&self.expression, &context))) {
            Ok(Ok(Cel::Bool(holds))) => Ok(holds),
            Ok(Ok(other)) => Err(format!("it returns a {}, not true or false", other.type_of())),
            Ok(Err(error)) => Err(crate::domain::text::capped(&error.to_string().replace('\n', " "), 200).into_owned()),
            Err(_) => Err(BROKE_DOWN.to_owned()),
        }
    }

    fn steps(&self, sizes: &Sizes<'_>) -> u64 {
        cost::steps(&self.expression, sizes, &self.pattern_steps)
    }
}

fn is_match(patterns: &[Regex], text: &Cel, pattern: i64) -> Result<bool, ExecutionError> {
    let pattern = usize::try_from(pattern).ok().and_then(|number| patterns.get(number));
    match (text, pattern) {
        (Cel::String(text), Some(pattern)) => Ok(pattern.is_match(text)),
        _ => Err(ExecutionError::function_error("matches", "expects a text")),
    }
}

/// The evaluation of all rules' conditions for one call. They share the data and the allowed steps.
#[derive(Debug)]
pub struct Evaluation<'a> {
    given: Given<'a>,
    sizes: Option<Sizes<'a>>,
    /// Remaining steps.
    steps: u64,
}

impl<'a> Evaluation<'a> {
    /// Starts the evaluation of conditions for a call.
    #[must_use]
    pub fn new(facts: Facts<'a>) -> Self {
        Self {
            given: Given {
                facts,
                arguments: OnceLock::new(),
                recipients: OnceLock::new(),
            },
            sizes: None,
            steps: MOST_STEPS,
        }
    }

    /// The call.
    #[must_use]
    pub fn facts(&self) -> &Facts<'a> {
        &self.given.facts
    }

    fn sizes(&mut self) -> &Sizes<'a> {
        let facts = &self.given.facts;
        self.sizes.get_or_insert_with(|| {
            let recipients = facts.recipients.map(super::Recipients::all).unwrap_or_default();
            let names = [
                facts.user,
                facts.agent.unwrap_or_default(),
                facts.surface,
                facts.server,
                facts.tool,
            ];
            let (arguments, fields) = Sizes::of_arguments(facts.arguments);
            Sizes {
                arguments,
                fields,
                recipients: recipients.into_iter().map(Size::text).fold(Size::text(""), Size::plus),
                name: names.into_iter().map(Size::text).fold(Size::text(""), Size::most),
            }
        })
    }

    fn take(&mut self, steps: u64) -> Result<(), String> {
        if steps > self.steps {
            return Err(format!(
                "its condition could take {steps} steps for arguments of this size, and {} are left of the \
                 {MOST_STEPS} that all rules may take for one call",
                self.steps
            ));
        }
        self.steps -= steps;
        Ok(())
    }
}

/// The data of the conditions, converted on first use.
#[derive(Debug)]
struct Given<'a> {
    facts: Facts<'a>,
    arguments: OnceLock<Box<dyn Val + 'a>>,
    recipients: OnceLock<Box<dyn Val + 'a>>,
}

impl VariableResolver for Given<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        let facts = &self.facts;
        let text = match variable {
            "arguments" => {
                return Some(CowVal::Borrowed(
                    self.arguments.get_or_init(|| cel(facts.arguments)).as_ref(),
                ));
            }
            "recipients" => {
                let recipients = facts.recipients?;
                let list = || {
                    let all = recipients.all().into_iter();
                    boxed(CelList::from(
                        all.map(|address| boxed(CelString::from(address))).collect::<Vec<_>>(),
                    ))
                };
                return Some(CowVal::Borrowed(self.recipients.get_or_init(list).as_ref()));
            }
            "user" => facts.user,
            "agent" => facts.agent.unwrap_or_default(),
            "surface" => facts.surface,
            "server" => facts.server,
            "tool" => facts.tool,
            _ => return None,
        };
        Some(CowVal::owned(CelString::from(text)))
    }
}

/// Runs in its own thread: the generated parser, and dropping a deep tree, take much stack for each level. An overflow
/// of the parser ends only that thread.
fn parse(source: String) -> Result<Condition, String> {
    let program = Program::compile(&source).map_err(|errors| {
        let told = errors.errors.first().map_or_else(String::new, |error| {
            format!(" (line {}, column {}: {})", error.pos.0, error.pos.1, error.msg)
        });
        format!("is not a CEL expression{told}").replace('\n', " ")
    })?;
    let mut expression = program.expression().clone();
    let mut names = Names::default();
    names.look(&mut expression, &mut Vec::new(), 0, 0)?;
    let condition = Condition {
        source,
        expression,
        patterns: names.patterns.into(),
        pattern_steps: names.pattern_steps,
        uses_recipients: names.uses_recipients,
    };
    let steps = condition.steps(&Sizes::SMALL);
    if steps > MOST_STEPS {
        return Err(format!(
            "could take {steps} steps even for a call with 50 values and 4 KiB of text; allowed: at most {MOST_STEPS}"
        ));
    }
    Ok(condition)
}

impl std::fmt::Debug for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.source)
    }
}

fn boxed<'a>(value: impl Val + 'a) -> Box<dyn Val + 'a> {
    Box::new(value)
}

/// Integers are signed if they fit, so that literals can be used in arithmetic with them. Texts are borrowed.
fn cel(value: &Value) -> Box<dyn Val + '_> {
    match value {
        Value::Null => boxed(CelNull),
        Value::Bool(value) => boxed(CelBool::from(*value)),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(number), _, _) => boxed(CelInt::from(number)),
            (_, Some(number), _) => boxed(CelUInt::from(number)),
            (_, _, Some(number)) => boxed(CelDouble::from(number)),
            _ => boxed(CelNull),
        },
        Value::String(value) => boxed(CelString::from(value.as_str())),
        Value::Array(items) => boxed(CelList::from(items.iter().map(cel).collect::<Vec<_>>())),
        Value::Object(object) => {
            let entries = object
                .iter()
                .map(|(name, value)| (CelMapKey::from(name.as_str()), cel(value)));
            boxed(CelMap::from(entries.collect::<HashMap<_, _>>()))
        }
    }
}

/// Collects the names in an expression. Calls of `matches` become calls of [`MATCHES`].
#[derive(Default)]
struct Names {
    patterns: Vec<Regex>,
    pattern_steps: Vec<u64>,
    uses_recipients: bool,
}

impl Names {
    /// `bound` contains the variables of the enclosing loops.
    fn look(&mut self, node: &mut IdedExpr, bound: &mut Vec<String>, loops: u32, level: usize) -> Result<(), String> {
        if level > MOST_LEVELS {
            return Err(format!("nests more than {MOST_LEVELS} levels deep"));
        }
        let level = level + 1;
        match &mut node.expr {
            Expr::Ident(name) if bound.contains(name) || name.starts_with('@') => Ok(()),
            Expr::Ident(name) if VARIABLES.contains(&name.as_str()) => {
                self.uses_recipients |= name == "recipients";
                Ok(())
            }
            Expr::Ident(name) => Err(format!("names `{name}`; variables are {}", VARIABLES.join(", "))),
            Expr::Call(call) => {
                let name = call.func_name.as_str();
                let is_operator = !name.starts_with(|c: char| c.is_ascii_alphabetic());
                if !is_operator && !FUNCTIONS.contains(&name) {
                    return Err(format!(
                        "calls `{name}`; functions are {}, and has, all, exists, exists_one, filter, map",
                        FUNCTIONS.join(", ")
                    ));
                }
                for part in call.target.iter_mut().map(|target| &mut **target).chain(&mut call.args) {
                    self.look(part, bound, loops, level)?;
                }
                if call.func_name == "matches" {
                    self.compile(call)
                } else {
                    Ok(())
                }
            }
            Expr::Select(select) => self.look(&mut select.operand, bound, loops, level),
            Expr::List(list) => list
                .elements
                .iter_mut()
                .try_for_each(|element| self.look(element, bound, loops, level)),
            Expr::Map(map) => map.entries.iter_mut().try_for_each(|entry| match &mut entry.expr {
                EntryExpr::MapEntry(entry) => {
                    self.look(&mut entry.key, bound, loops, level)?;
                    self.look(&mut entry.value, bound, loops, level)
                }
                EntryExpr::StructField(_) => Err("creates a struct, and structs are not supported".to_owned()),
            }),
            Expr::Comprehension(each) => {
                self.look(&mut each.iter_range, bound, loops, level)?;
                self.look(&mut each.accu_init, bound, loops, level)?;
                if loops == MOST_LOOPS {
                    return Err(format!(
                        "nests more than {MOST_LOOPS} loops (all, exists, exists_one, filter, map) in each other"
                    ));
                }
                let outer = bound.len();
                bound.push(each.iter_var.clone());
                bound.extend(each.iter_var2.clone());
                bound.push(each.accu_var.clone());
                for part in [&mut each.loop_cond, &mut each.loop_step, &mut each.result] {
                    self.look(part, bound, loops + 1, level)?;
                }
                bound.truncate(outer);
                Ok(())
            }
            Expr::Literal(_) => Ok(()),
            Expr::Struct(_) => Err("creates a struct, and structs are not supported".to_owned()),
            Expr::Unspecified => Err("is not a CEL expression".to_owned()),
        }
    }

    /// Compiles the pattern of a call of `matches`, once. It must be a literal in the condition: a pattern from a
    /// model's arguments has no cost limit.
    fn compile(&mut self, call: &mut CallExpr) -> Result<(), String> {
        let mut parts: Vec<_> = call.target.take().map(|target| *target).into_iter().collect();
        parts.append(&mut call.args);
        let [text, pattern] =
            <[IdedExpr; 2]>::try_from(parts).map_err(|_| "calls `matches` without a pattern".to_owned())?;
        let Expr::Literal(LiteralValue::String(source)) = &pattern.expr else {
            return Err("calls `matches` with a pattern that is not a text in quotes".to_owned());
        };
        let build = |size| RegexBuilder::new(source.inner()).size_limit(size).build();
        let compiled = build(MOST_PATTERN).map_err(|error| {
            let error = error.to_string();
            let told = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
            format!("calls `matches` with a pattern that is not allowed (regex: {told})")
        })?;
        let doubled =
            (0..).find(|doubled| PLAIN_PATTERN << doubled >= MOST_PATTERN || build(PLAIN_PATTERN << doubled).is_ok());
        let number = i64::try_from(self.patterns.len()).unwrap_or(i64::MAX);
        self.patterns.push(compiled);
        self.pattern_steps.push(PATTERN_STEPS << doubled.unwrap_or_default());
        let number = IdedExpr {
            id: pattern.id,
            expr: Expr::Literal(LiteralValue::Int(CelInt::from(number))),
        };
        *call = CallExpr {
            func_name: MATCHES.to_owned(),
            target: None,
            args: vec![text, number],
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;
    use serde_json::json;

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
        };
        // With no recipients, every `all` would be true.
        let all = Condition::parse("recipients.all(r, r.endsWith('@x.org'))").unwrap();
        assert!(
            all.holds(&mut Evaluation::new(without))
                .unwrap_err()
                .contains("name no `recipients`")
        );
    }

    #[test]
    fn names_that_do_not_exist_are_found_before_any_call() {
        for (source, says) in [
            ("argument.to == 'x'", "names `argument`; variables are arguments"),
            ("recipients.all(r, s == 'x')", "names `s`"),
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

    /// Promise 5: arguments of any size take bounded time. Conditions that are not rejected are evaluated, so this test
    /// takes long if the estimate is too low.
    #[test]
    fn the_worst_conditions_are_refused_before_they_take_long() {
        let body = (0..40).map(|n| format!("a != {n}")).collect::<Vec<_>>().join(" && ");
        let doubling = ".map(x, x + x)".repeat(4);
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
        assert!(
            Condition::parse(&large).unwrap_err().contains("steps even for a call"),
            "{large}"
        );
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
                prop::collection::btree_map("[a-e]", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
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
            };
            for condition in CONDITIONS.iter() {
                let found = condition.holds(&mut Evaluation::new(facts));
                prop_assert!(found != Err(BROKE_DOWN.to_owned()), "{condition:?} of {arguments}");
            }
        }
    }
}
