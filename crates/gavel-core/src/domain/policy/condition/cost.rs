//! An upper bound for the time of a condition, computed before it is evaluated.
//!
//! The bound is in steps (about 50 ns each), from the expression and the size of the call's data. For each part of an
//! expression it uses the number of evaluations and the maximum size of its values, both in one evaluation and in all
//! of them. A loop over the lists inside a list therefore costs no more than the whole list.

use std::collections::HashMap;

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use serde_json::Value;

/// The most steps for the conditions of all rules for one call. Measured: at most 50 ms on one core.
pub(super) const MOST_STEPS: u64 = 1_000_000;

/// Bytes compared or copied in one step.
const BYTES_A_STEP: u64 = 64;

/// The most steps that an expression takes.
pub(super) fn steps(expression: &IdedExpr, sizes: &Sizes<'_>, patterns: &[u64]) -> u64 {
    let mut walk = Walk {
        sizes,
        patterns,
        bound: Vec::new(),
        loops: Vec::new(),
        steps: 0,
    };
    walk.look(expression, 1);
    walk.steps
}

/// The values of one part of an expression.
#[derive(Clone, Copy)]
struct Values {
    /// The maximum of one evaluation.
    each: Size,
    /// The maximum of all evaluations together.
    all: Size,
}

impl Values {
    fn each(each: Size, times: u64) -> Self {
        Self {
            each,
            all: each.times(times),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            each: self.each.plus(other.each),
            all: self.all.plus(other.all),
        }
    }
}

/// A variable of a loop.
struct Variable<'a> {
    name: &'a str,
    values: Values,
    /// Number of loops around the loop that sets it. Inner loops repeat each value.
    depth: usize,
}

struct Walk<'a> {
    sizes: &'a Sizes<'a>,
    /// Steps for each byte that pattern number n reads.
    patterns: &'a [u64],
    bound: Vec<Variable<'a>>,
    /// The most rounds of one evaluation of each enclosing loop.
    loops: Vec<u64>,
    steps: u64,
}

impl<'a> Walk<'a> {
    fn take(&mut self, steps: u64) {
        self.steps = self.steps.saturating_add(steps);
    }

    /// Counts a part of the expression that is evaluated this many times.
    fn look(&mut self, node: &'a IdedExpr, times: u64) -> Values {
        self.take(times);
        match &node.expr {
            Expr::Literal(literal) => Values::each(written(literal), times),
            Expr::Ident(name) => self.variable(name, times),
            // A part of a value is no larger than the value.
            Expr::Select(select) => {
                let mut of = self.look(&select.operand, times);
                let is_argument = matches!(&select.operand.expr, Expr::Ident(name) if self.is_arguments(name));
                if let Some(fields) = self.sizes.fields.as_ref().filter(|_| is_argument) {
                    let size = fields.get(select.field.as_str()).copied().unwrap_or(Size::ONE);
                    of = Values::each(size, times);
                }
                if select.test {
                    Values::each(Size::ONE, times)
                } else {
                    of
                }
            }
            Expr::List(list) => self.collect(list.elements.iter(), times),
            Expr::Map(map) => {
                let parts = map.entries.iter().filter_map(|entry| match &entry.expr {
                    EntryExpr::MapEntry(entry) => Some([&entry.key, &entry.value]),
                    EntryExpr::StructField(_) => None,
                });
                self.collect(parts.flatten(), times)
            }
            Expr::Call(call) => self.call(call, times),
            Expr::Comprehension(each) => self.each(each, times),
            // Parsing the file rejects these.
            Expr::Struct(_) | Expr::Unspecified => Values::each(Size::ONE, times),
        }
    }

    fn is_arguments(&self, name: &str) -> bool {
        name == "arguments" && !self.bound.iter().any(|variable| variable.name == name)
    }

    fn variable(&self, name: &str, times: u64) -> Values {
        if let Some(variable) = self.bound.iter().rev().find(|variable| variable.name == name) {
            let Values { each, all } = variable.values;
            let repeated = self.loops[variable.depth..]
                .iter()
                .fold(1_u64, |all, rounds| all.saturating_mul(*rounds));
            let all = all.times(repeated).least(each.times(times));
            return Values { each, all };
        }
        let size = match name {
            "arguments" => self.sizes.arguments,
            "recipients" => self.sizes.recipients,
            _ => self.sizes.name,
        };
        Values::each(size, times)
    }

    /// A list or map literal: its parts are copied into it.
    fn collect(&mut self, parts: impl Iterator<Item = &'a IdedExpr>, times: u64) -> Values {
        let mut values = Values::each(Size::ONE, times);
        for part in parts {
            values = values.plus(self.look(part, times));
        }
        self.take(values.all.steps());
        values
    }

    fn call(&mut self, call: &'a CallExpr, times: u64) -> Values {
        let parts = call.target.iter().map(|target| &**target).chain(&call.args);
        let values: Vec<_> = parts.map(|part| self.look(part, times)).collect();
        let both = values
            .iter()
            .copied()
            .fold(Values::each(Size::default(), 0), Values::plus);
        let answer = Values::each(Size::ONE, times);
        match (call.func_name.as_str(), &*values) {
            (operators::CONDITIONAL, [_, one, other]) => Values {
                each: one.each.most(other.each),
                all: one.all.plus(other.all),
            },
            (operators::INDEX, [of, index]) => {
                self.take(index.all.steps());
                *of
            }
            (operators::ADD, _) => {
                self.take(both.all.steps());
                both
            }
            ("string", _) => {
                self.take(both.all.steps());
                // The text of the longest number, if the value was not a text.
                both.plus(Values::each(Size { values: 0, bytes: 32 }, times))
            }
            // A comparison of texts or lists ends at the end of the shorter one, or earlier.
            (
                operators::EQUALS
                | operators::NOT_EQUALS
                | operators::LESS
                | operators::LESS_EQUALS
                | operators::GREATER
                | operators::GREATER_EQUALS
                | "startsWith"
                | "endsWith",
                [one, other],
            ) => {
                self.take(one.all.least(other.all).steps().saturating_mul(2));
                answer
            }
            ("size", [of]) => {
                self.take(of.all.bytes / BYTES_A_STEP);
                answer
            }
            (super::MATCHES, [text, _]) => {
                let a_byte = match call.args.last().map(|pattern| &pattern.expr) {
                    Some(Expr::Literal(LiteralValue::Int(number))) => usize::try_from(*number.inner())
                        .ok()
                        .and_then(|number| self.patterns.get(number)),
                    _ => None,
                };
                self.take(text.all.steps());
                // An unknown pattern could take any time.
                self.take(a_byte.map_or(u64::MAX, |a_byte| text.all.bytes.saturating_mul(*a_byte) / BYTES_A_STEP));
                answer
            }
            // These read all of their arguments, or quote them in an error.
            _ => {
                self.take(both.all.steps());
                answer
            }
        }
    }

    fn each(&mut self, each: &'a ComprehensionExpr, times: u64) -> Values {
        let range = self.look(&each.iter_range, times);
        self.look(&each.accu_init, times);
        // Each value of the range is copied into the loop variable.
        self.take(range.all.steps());
        let rounds = range.all.values;
        let most_rounds = range.each.values;
        let outer = self.bound.len();
        self.loops.push(most_rounds);
        let accumulated = Values::each(Size::ONE, rounds);
        let variables = [
            (Some(&each.iter_var), range),
            (each.iter_var2.as_ref(), range),
            (Some(&each.accu_var), accumulated),
        ];
        for (name, values) in variables {
            self.bound.extend(name.map(|name| Variable {
                name,
                values,
                depth: self.loops.len(),
            }));
        }
        self.look(&each.loop_cond, rounds);
        let step = self.look(&each.loop_step, rounds);
        self.look(&each.result, times);
        self.bound.truncate(outer);
        self.loops.pop();
        // `map` and `filter` collect the result of each round; other loops return one value.
        match &each.accu_init.expr {
            Expr::List(_) => Values {
                each: step
                    .each
                    .times(most_rounds)
                    .plus(Size::ONE)
                    .least(step.all.plus(Size::ONE)),
                all: step.all.plus(Size::ONE.times(times)),
            },
            _ => Values::each(Size::ONE, times),
        }
    }
}

fn written(literal: &LiteralValue) -> Size {
    match literal {
        LiteralValue::String(text) => Size::text(text.inner()),
        LiteralValue::Bytes(bytes) => Size {
            values: 1,
            bytes: bytes.inner().len() as u64,
        },
        _ => Size::ONE,
    }
}

// The sizes of a call's data, which bound the cost of a condition.

/// The size of data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    /// Values, including those inside lists and maps.
    values: u64,
    /// Bytes of texts and of map keys.
    pub(crate) bytes: u64,
}

impl Size {
    const ONE: Self = Self { values: 1, bytes: 0 };

    pub(crate) const fn text(text: &str) -> Self {
        Self {
            values: 1,
            bytes: text.len() as u64,
        }
    }

    /// The size of a value with everything in it.
    pub(crate) fn of(value: &Value) -> Self {
        match value {
            Value::String(text) => Self::text(text),
            Value::Array(items) => items.iter().map(Self::of).fold(Self::ONE, Self::plus),
            // A key is a value in a loop over a map.
            Value::Object(object) => object
                .iter()
                .map(|(name, value)| Self::text(name).plus(Self::of(value)))
                .fold(Self::ONE, Self::plus),
            _ => Self::ONE,
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            values: self.values.saturating_add(other.values),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    fn times(self, times: u64) -> Self {
        Self {
            values: self.values.saturating_mul(times),
            bytes: self.bytes.saturating_mul(times),
        }
    }

    pub(crate) fn most(self, other: Self) -> Self {
        Self {
            values: self.values.max(other.values),
            bytes: self.bytes.max(other.bytes),
        }
    }

    fn least(self, other: Self) -> Self {
        Self {
            values: self.values.min(other.values),
            bytes: self.bytes.min(other.bytes),
        }
    }

    /// Steps for one pass over it.
    fn steps(self) -> u64 {
        self.values.saturating_add(self.bytes / BYTES_A_STEP)
    }
}

/// The sizes of the data that a condition can read.
#[derive(Clone, Debug)]
pub(super) struct Sizes<'a> {
    pub(crate) arguments: Size,
    /// Of each argument, if known: a long text does not affect a loop over another argument.
    pub(crate) fields: Option<HashMap<&'a str, Size>>,
    pub(crate) recipients: Size,
    /// The longest name: of the user, the tool and so on.
    pub(crate) name: Size,
}

impl<'a> Sizes<'a> {
    /// The sizes of the arguments, together and each alone.
    pub(crate) fn of_arguments(arguments: &'a Value) -> (Size, Option<HashMap<&'a str, Size>>) {
        let Value::Object(object) = arguments else {
            return (Size::of(arguments), None);
        };
        let fields: HashMap<_, _> = object
            .iter()
            .map(|(name, value)| (name.as_str(), Size::of(value)))
            .collect();
        let all = fields
            .iter()
            .map(|(name, size)| Size::text(name).plus(*size))
            .fold(Size::ONE, Size::plus);
        (all, Some(fields))
    }

    /// A small call. A condition that takes too long even for this is an error in the policy.
    pub(crate) const SMALL: Self = Self {
        arguments: Size {
            values: 50,
            bytes: 4096,
        },
        fields: None,
        recipients: Size {
            values: 50,
            bytes: 2048,
        },
        name: Size { values: 1, bytes: 64 },
    };
}
