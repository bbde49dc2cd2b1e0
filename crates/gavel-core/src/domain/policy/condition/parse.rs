//! Parses an expression and checks its names, its depth and its patterns.

use cel::Program;
use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue};
use cel::common::types::CelInt;
use regex::{Regex, RegexBuilder};

use super::super::SessionFacts;
use super::cost::{MOST_STEPS, Sizes};
use super::{Condition, MATCHES};

/// The deepest expression, in levels of its tree. Evaluating each level takes much stack.
const MOST_LEVELS: usize = 24;

/// The most nested loops. A third level has no legitimate use, and multiplies the cost of each call.
const MOST_LOOPS: u32 = 2;

/// Stack of the parser, which itself stops at some hundred levels.
pub(super) const PARSER_STACK: usize = 64 << 20;

/// Size limit of a compiled pattern, in bytes. `(?i)` and `\w` are far below; counted repetitions of classes reach it.
const MOST_PATTERN: usize = 64 << 10;

/// Below this size, a pattern reads 64 bytes in [`PATTERN_STEPS`]. A larger one takes proportionally more steps.
const PLAIN_PATTERN: usize = 8 << 10;

/// Steps for a pattern to read 64 bytes, including their copy.
const PATTERN_STEPS: u64 = 4;

/// The variables of an expression.
const VARIABLES: [&str; 7] = ["arguments", "recipients", "user", "agent", "surface", "server", "tool"];

/// A variable that is only read by its fields, [`SessionFacts::FIELDS`].
pub(super) const SESSION: &str = "session";

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

/// Runs in its own thread: the generated parser, and dropping a deep tree, take much stack for each level. An overflow
/// of the parser ends only that thread.
pub(super) fn parse(source: String) -> Result<Condition, String> {
    let program = Program::compile(&source).map_err(|errors| {
        let reported = errors.errors.first().map_or_else(String::new, |error| {
            format!(" (line {}, column {}: {})", error.pos.0, error.pos.1, error.msg)
        });
        format!("is not a CEL expression{reported}").replace('\n', " ")
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
        uses_arguments: names.uses_arguments,
    };
    let steps = condition.steps(&Sizes::SMALL);
    if steps > MOST_STEPS {
        return Err(format!(
            "could take {steps} steps even for a call with 50 values and 4 KiB of text; allowed: at most {MOST_STEPS}"
        ));
    }
    Ok(condition)
}

/// All that an expression can name.
fn variables() -> String {
    let fields = SessionFacts::FIELDS.map(|field| format!("{SESSION}.{field}"));
    format!("{}, {}", VARIABLES.join(", "), fields.join(", "))
}

fn is_session(node: &IdedExpr, bound: &[String]) -> bool {
    matches!(&node.expr, Expr::Ident(name) if name == SESSION && !bound.contains(name))
}

/// Collects the names in an expression. Calls of `matches` become calls of [`MATCHES`].
#[derive(Default)]
struct Names {
    patterns: Vec<Regex>,
    pattern_steps: Vec<u64>,
    uses_recipients: bool,
    uses_arguments: bool,
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
                self.uses_arguments |= name == "arguments";
                Ok(())
            }
            Expr::Ident(name) => Err(format!("names `{name}`; variables are {}", variables())),
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
            Expr::Select(select) if is_session(&select.operand, bound) => {
                let field = select.field.as_str();
                match SessionFacts::FIELDS.contains(&field) {
                    true => Ok(()),
                    false => Err(format!("names `session.{field}`; variables are {}", variables())),
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
            let reported = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
            format!("calls `matches` with a pattern that is not allowed (regex: {reported})")
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
