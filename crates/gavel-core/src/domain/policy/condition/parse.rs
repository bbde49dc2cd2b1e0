//! Parses an expression and checks its names, its depth and its patterns.

use cel::Program;
use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use cel::common::types::CelInt;
use regex::{Regex, RegexBuilder};

use super::super::SessionFacts;
use super::{Condition, MATCHES, MOST_LOOPS, MOST_STEPS, SMALL, Uses, Work};

/// The deepest expression, in levels of its tree. Evaluating each level takes much stack.
const MOST_LEVELS: usize = 24;

/// The most loops over the result of loops, such as `filter`, in a row. Each may multiply the data.
const MOST_CHAINED: usize = 4;

/// Stack of the parser, which itself stops at some hundred levels.
pub(super) const PARSER_STACK: usize = 64 << 20;

/// Size limit of a compiled pattern, in bytes. `(?i)` and `\w` are far below; counted repetitions of classes reach it.
const MOST_PATTERN: usize = 64 << 10;

/// Below this size, a pattern reads a text in [`PATTERN_PASSES`]. A larger one takes proportionally more.
const PLAIN_PATTERN: usize = 8 << 10;

/// Passes over a text for a pattern to read it, including its copy.
const PATTERN_PASSES: u64 = 4;

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
        uses: names.uses,
        work: names.work,
    };
    let steps = condition.work.steps(SMALL.plus(condition.uses.written()));
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

/// Collects the names in an expression, and what it can take. Calls of `matches` become calls of [`MATCHES`].
#[derive(Default)]
struct Names {
    patterns: Vec<Regex>,
    uses: Uses,
    work: Work,
    /// The loops so far.
    loops: usize,
}

impl Names {
    /// `bound` contains the variables of the enclosing loops.
    fn look(&mut self, node: &mut IdedExpr, bound: &mut Vec<String>, loops: usize, level: usize) -> Result<(), String> {
        if level > MOST_LEVELS {
            return Err(format!("nests more than {MOST_LEVELS} levels deep"));
        }
        let level = level + 1;
        self.work.parts[loops] += 1;
        match &mut node.expr {
            Expr::Ident(name) if bound.contains(name) || name.starts_with('@') => Ok(()),
            Expr::Ident(name) if VARIABLES.contains(&name.as_str()) => {
                self.uses.recipients |= name == "recipients";
                self.uses.all_arguments |= name == "arguments";
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
                let mut passes = u64::from(reads(call));
                if call.func_name == "matches" {
                    passes = self.compile(call)?;
                }
                let read = call.target.iter().map(|target| &**target).chain(&call.args);
                self.pass(read, is_comparison(&call.func_name), passes, bound, loops);
                Ok(())
            }
            Expr::Select(select) if is_session(&select.operand, bound) => {
                let field = select.field.as_str();
                match SessionFacts::FIELDS.contains(&field) {
                    true => Ok(()),
                    false => Err(format!("names `session.{field}`; variables are {}", variables())),
                }
            }
            Expr::Select(select) => match &select.operand.expr {
                Expr::Ident(name) if name == "arguments" && !bound.contains(name) => {
                    self.uses.arguments.insert(select.field.clone());
                    Ok(())
                }
                _ => self.look(&mut select.operand, bound, loops, level),
            },
            Expr::List(list) => {
                let mut elements = list.elements.iter_mut();
                elements.try_for_each(|element| self.hold(element, bound, loops, level))
            }
            Expr::Map(map) => map.entries.iter_mut().try_for_each(|entry| match &mut entry.expr {
                EntryExpr::MapEntry(entry) => {
                    self.hold(&mut entry.key, bound, loops, level)?;
                    self.hold(&mut entry.value, bound, loops, level)
                }
                EntryExpr::StructField(_) => Err("creates a struct, and structs are not supported".to_owned()),
            }),
            Expr::Comprehension(each) => {
                let before = self.loops;
                self.look(&mut each.iter_range, bound, loops, level)?;
                self.look(&mut each.accu_init, bound, loops, level)?;
                self.loops += 1;
                if self.loops - before > MOST_CHAINED {
                    return Err(format!("has more than {MOST_CHAINED} loops in a row"));
                }
                // Each value of the range is copied into the loop variable.
                self.work.passes[loops] += 1;
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

    /// A part of a list or a map in the expression, into which it is copied.
    fn hold(&mut self, part: &mut IdedExpr, bound: &mut Vec<String>, loops: usize, level: usize) -> Result<(), String> {
        self.look(part, bound, loops, level)?;
        self.uses.written += 1;
        self.pass(std::iter::once(&*part), false, 1, bound, loops);
        Ok(())
    }

    /// Counts how often a part of the expression reads or copies what it is given. Of a literal, nothing counts. All
    /// values of a loop's variable together are one pass for each round of the other loops. A comparison ends with the
    /// smaller value.
    fn pass<'a>(
        &mut self,
        read: impl Iterator<Item = &'a IdedExpr>,
        is_comparison: bool,
        passes: u64,
        bound: &[String],
        loops: usize,
    ) {
        let rounds = read.map(|part| match part.expr {
            Expr::Literal(_) => None,
            _ if bound.iter().any(|variable| names_only(part, variable)) => Some(loops.saturating_sub(1)),
            _ => Some(loops),
        });
        let rounds = match is_comparison {
            true => rounds.min().flatten(),
            false => rounds.max().flatten(),
        };
        if let Some(rounds) = rounds {
            self.work.passes[rounds] += passes;
        }
    }

    /// Compiles the pattern of a call of `matches`, once. It must be a literal in the condition: a pattern from a
    /// model's arguments has no cost limit. Returns the passes over the text.
    fn compile(&mut self, call: &mut CallExpr) -> Result<u64, String> {
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
        let number = IdedExpr {
            id: pattern.id,
            expr: Expr::Literal(LiteralValue::Int(CelInt::from(number))),
        };
        *call = CallExpr {
            func_name: MATCHES.to_owned(),
            target: None,
            args: vec![text, number],
        };
        Ok(PATTERN_PASSES << doubled.unwrap_or_default())
    }
}

/// Whether a call reads or copies what it is given, not only a number or a part of it.
fn reads(call: &CallExpr) -> bool {
    const CHEAP: [&str; 11] = [
        operators::CONDITIONAL,
        operators::DIVIDE,
        operators::INDEX,
        operators::LOGICAL_AND,
        operators::LOGICAL_NOT,
        operators::LOGICAL_OR,
        operators::MODULO,
        operators::MULTIPLY,
        operators::NEGATE,
        operators::NOT_STRICTLY_FALSE,
        operators::SUBSTRACT,
    ];
    // A loop adds to its result without copying it.
    let collects =
        matches!(call.args.first().map(|first| &first.expr), Some(Expr::Ident(name)) if name.starts_with('@'));
    !(CHEAP.contains(&call.func_name.as_str()) || call.func_name == operators::ADD && collects)
}

fn is_comparison(name: &str) -> bool {
    const COMPARISONS: [&str; 8] = [
        operators::EQUALS,
        operators::NOT_EQUALS,
        operators::LESS,
        operators::LESS_EQUALS,
        operators::GREATER,
        operators::GREATER_EQUALS,
        "startsWith",
        "endsWith",
    ];
    COMPARISONS.contains(&name)
}

/// Whether an expression consists of this variable, its parts, and literals.
fn names_only(node: &IdedExpr, variable: &str) -> bool {
    match &node.expr {
        Expr::Literal(_) => true,
        Expr::Ident(name) => name == variable,
        Expr::Select(select) => names_only(&select.operand, variable),
        Expr::List(list) => list.elements.iter().all(|element| names_only(element, variable)),
        Expr::Call(call) => {
            let parts = call.target.iter().map(|target| &**target).chain(&call.args);
            parts.into_iter().all(|part| names_only(part, variable))
        }
        _ => false,
    }
}
