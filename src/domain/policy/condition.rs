//! What a rule asks of a call: an expression in CEL, the Common Expression Language.
//!
//! The words of an expression are the operator's, what it looks at is a model's. So whatever cannot be evaluated, is no
//! boolean, or would take too long is an error, and the gate denies. Names are checked when the file is read: a
//! misspelled variable would otherwise be found by the first call.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::objects::Map;
use cel::{Context, Env, Program, Value as Cel};
use serde_json::Value;

use super::Facts;

/// Longest expression, in bytes.
pub(super) const MOST_BYTES: usize = 4096;

/// Deepest expression, in levels of its tree: each takes much stack when it is evaluated.
const MOST_LEVELS: usize = 24;

/// For the parser, which itself stops at some hundred levels.
const PARSER_STACK: usize = 64 << 20;

/// Most rounds of loops, for all loops of an expression together.
const MOST_ROUNDS: usize = 10_000;

/// Said of an evaluation that panics.
const BROKE_DOWN: &str = "its evaluation broke down";

/// What an expression may look at.
const VARIABLES: [&str; 7] = ["arguments", "recipients", "user", "agent", "surface", "server", "tool"];

/// What it may call, beside operators.
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

/// An expression, parsed.
pub struct Condition {
    source: String,
    program: Program,
    /// Loops inside loops.
    loops: u32,
    uses_recipients: bool,
}

impl Condition {
    /// Parses an expression.
    ///
    /// # Errors
    /// What is wrong with it, on one line.
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
        parsed.unwrap_or_else(|_| Err("is no CEL expression".to_owned()))
    }

    /// Does it look at whom a call reaches?
    pub(super) fn uses_recipients(&self) -> bool {
        self.uses_recipients
    }

    /// Does it hold for a call?
    ///
    /// # Errors
    /// Why that cannot be said.
    pub fn holds(&self, facts: &Facts<'_>) -> Result<bool, String> {
        if self.loops > 0 {
            let values = count(facts.arguments) + facts.recipients.map_or(0, |recipients| recipients.all().len());
            if values.saturating_pow(self.loops) > MOST_ROUNDS {
                return Err(format!(
                    "it would go through {values} values in {} nested loops; {MOST_ROUNDS} rounds are the most",
                    self.loops
                ));
            }
        }
        let mut context = Context::with_env(Arc::clone(&STANDARD));
        if self.uses_recipients {
            let Some(recipients) = facts.recipients else {
                return Err("the settings of this tool name no `recipients`".to_owned());
            };
            let list = recipients.all().into_iter().map(text).collect();
            context.add_variable_from_value("recipients", Cel::List(Arc::new(list)));
        }
        let texts = [
            ("user", facts.user),
            ("agent", facts.agent.unwrap_or_default()),
            ("surface", facts.surface),
            ("server", facts.server),
            ("tool", facts.tool),
        ];
        for (name, value) in texts {
            context.add_variable_from_value(name, text(value));
        }
        context.add_variable_from_value("arguments", cel(facts.arguments));
        match catch_unwind(AssertUnwindSafe(|| self.program.execute(&context))) {
            Ok(Ok(Cel::Bool(holds))) => Ok(holds),
            Ok(Ok(other)) => Err(format!("it gives a {}, not true or false", other.type_of())),
            Ok(Err(error)) => Err(crate::domain::text::capped(&error.to_string().replace('\n', " "), 200).into_owned()),
            Err(_) => Err(BROKE_DOWN.to_owned()),
        }
    }
}

/// In a thread of its own: the parser is generated code that takes much stack for each level, as does letting go of a deep
/// tree, and what it cannot take ends no more than that thread.
fn parse(source: String) -> Result<Condition, String> {
    let program = Program::compile(&source).map_err(|errors| {
        let told = errors.errors.first().map_or_else(String::new, |error| {
            format!(" (line {}, column {}: {})", error.pos.0, error.pos.1, error.msg)
        });
        format!("is no CEL expression{told}").replace('\n', " ")
    })?;
    let mut names = Names::default();
    names.look(program.expression(), &mut Vec::new(), 0, 0)?;
    Ok(Condition {
        source,
        program,
        loops: names.loops,
        uses_recipients: names.uses_recipients,
    })
}

impl std::fmt::Debug for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.source)
    }
}

fn text(text: &str) -> Cel {
    Cel::String(Arc::new(text.to_owned()))
}

/// Whole numbers are signed wherever they fit, so that they can be reckoned with as they are written.
fn cel(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(value) => Cel::Bool(*value),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(number), _, _) => Cel::Int(number),
            (_, Some(number), _) => Cel::UInt(number),
            (_, _, Some(number)) => Cel::Float(number),
            _ => Cel::Null,
        },
        Value::String(value) => text(value),
        Value::Array(items) => Cel::List(Arc::new(items.iter().map(cel).collect())),
        Value::Object(object) => {
            let entries: HashMap<String, Cel> = object.iter().map(|(name, value)| (name.clone(), cel(value))).collect();
            Cel::Map(Map::from(entries))
        }
    }
}

/// How many values there are in it, itself included.
fn count(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(count).sum::<usize>(),
        Value::Object(object) => 1 + object.values().map(count).sum::<usize>(),
        _ => 1,
    }
}

/// What an expression names.
#[derive(Default)]
struct Names {
    loops: u32,
    uses_recipients: bool,
}

impl Names {
    /// `bound` are the variables of the loops around it.
    fn look<'a>(
        &mut self,
        node: &'a IdedExpr,
        bound: &mut Vec<&'a str>,
        loops: u32,
        level: usize,
    ) -> Result<(), String> {
        if level > MOST_LEVELS {
            return Err(format!("nests more than {MOST_LEVELS} levels deep"));
        }
        let level = level + 1;
        match &node.expr {
            Expr::Ident(name) if bound.contains(&name.as_str()) || name.starts_with('@') => Ok(()),
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
                for part in call.target.iter().map(|target| &**target).chain(&call.args) {
                    self.look(part, bound, loops, level)?;
                }
                Ok(())
            }
            Expr::Select(select) => self.look(&select.operand, bound, loops, level),
            Expr::List(list) => list
                .elements
                .iter()
                .try_for_each(|element| self.look(element, bound, loops, level)),
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => {
                    self.look(&entry.key, bound, loops, level)?;
                    self.look(&entry.value, bound, loops, level)
                }
                EntryExpr::StructField(_) => Err("makes a struct, and there are none".to_owned()),
            }),
            Expr::Comprehension(each) => {
                self.look(&each.iter_range, bound, loops, level)?;
                self.look(&each.accu_init, bound, loops, level)?;
                self.loops = self.loops.max(loops + 1);
                let outer = bound.len();
                bound.push(&each.iter_var);
                bound.extend(each.iter_var2.as_deref());
                bound.push(&each.accu_var);
                for part in [&each.loop_cond, &each.loop_step, &each.result] {
                    self.look(part, bound, loops + 1, level)?;
                }
                bound.truncate(outer);
                Ok(())
            }
            Expr::Literal(_) => Ok(()),
            Expr::Struct(_) => Err("makes a struct, and there are none".to_owned()),
            Expr::Unspecified => Err("is no CEL expression".to_owned()),
        }
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
        Condition::parse(source).unwrap().holds(&Facts {
            server: "google",
            tool: "gmail_send",
            user: "ann",
            agent: None,
            surface: "chat",
            arguments,
            recipients: Some(&checked.recipients),
        })
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
            ("string(arguments.n).matches('(')", "regex"),
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
        // Of nobody everything would be true.
        let all = Condition::parse("recipients.all(r, r.endsWith('@x.org'))").unwrap();
        assert!(all.holds(&without).unwrap_err().contains("name no `recipients`"));
    }

    #[test]
    fn names_that_do_not_exist_are_found_before_any_call() {
        for (source, says) in [
            ("argument.to == 'x'", "names `argument`; variables are arguments"),
            ("recipients.all(r, s == 'x')", "names `s`"),
            ("recipients.all(r, true) && r == 'x'", "names `r`"),
            ("recipients.every(r, true)", "calls `every`|names `r`"),
            ("now() > 1", "calls `now`"),
            ("user ==", "is no CEL expression (line 1, column"),
            ("", "is no CEL expression"),
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

    /// Promise 5: arguments of any size take bounded time.
    #[test]
    fn loops_over_too_much_are_refused_before_they_are_run() {
        let many: Vec<u32> = (0..200).collect();
        let once = "arguments.list.all(a, a >= 0)";
        let twice = "arguments.list.all(a, arguments.list.all(b, a + b >= 0))";
        assert_eq!(holds(once, &json!({"list": many})), Ok(true));
        assert!(holds(twice, &json!({"list": many})).unwrap_err().contains("rounds"));
        let more: Vec<u32> = (0..20_000).collect();
        assert!(holds(once, &json!({"list": more})).unwrap_err().contains("rounds"));
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

    /// Everything that can go wrong with a value, once for each operator and function.
    const ODD: [&str; 21] = [
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
        "arguments.a.matches(arguments.b)",
        "arguments.a.contains(arguments.b)",
        "arguments.a.b.c == 1",
        "has(arguments.a.b)",
        "arguments.a ? true : false",
        "arguments.a.filter(x, x == 1).size() == 0",
    ];

    static CONDITIONS: LazyLock<Vec<Condition>> =
        LazyLock::new(|| ODD.iter().map(|source| Condition::parse(source).unwrap()).collect());

    proptest! {
        /// A model's arguments are answered, whatever they are.
        #[test]
        fn no_arguments_break_an_evaluation(a in json_value(), b in json_value()) {
            let arguments = json!({"a": a, "b": b});
            let facts = Facts {
                server: "s", tool: "t", user: "u", agent: None, surface: "chat", arguments: &arguments, recipients: None,
            };
            for condition in CONDITIONS.iter() {
                let found = condition.holds(&facts);
                prop_assert!(found != Err(BROKE_DOWN.to_owned()), "{condition:?} of {arguments}");
            }
        }
    }
}
