//! The condition of a rule: an expression in CEL, the Common Expression Language.
//!
//! The operator writes the expression, and a model writes the arguments that it reads. So anything that cannot be
//! evaluated, is not a boolean, or would take too long is an error, and the policy denies the call. Names are checked
//! when the file is parsed; otherwise only the first call would reveal a misspelled variable.

mod parse;

use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock, OnceLock};

use cel::common::ast::IdedExpr;
use cel::common::types::{CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt};
use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;
use cel::extractors::This;
use cel::{Context, Env, ExecutionError, Value as Cel};
use regex::Regex;
use serde_json::Value;

use self::parse::{PARSER_STACK, SESSION, parse};
use super::{AGENTS, Facts, Recipients};

/// The longest expression, in bytes.
pub(super) const MOST_BYTES: usize = 4096;

/// The error of an evaluation that panics.
const BROKE_DOWN: &str = "its evaluation failed unexpectedly";

/// The name of `matches` in a parsed expression: its second argument is the number of a compiled pattern.
pub(super) const MATCHES: &str = "@matches";

static STANDARD: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// A parsed expression.
pub struct Condition {
    source: String,
    expression: IdedExpr,
    patterns: Arc<[Regex]>,
    uses: Uses,
    work: Work,
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
        self.uses.recipients
    }

    /// Whether it reads the arguments of a call, or its recipients, which are arguments.
    pub(super) fn uses_arguments(&self) -> bool {
        self.uses.recipients || self.uses.all_arguments || !self.uses.arguments.is_empty()
    }

    /// Whether it is true for a call.
    ///
    /// # Errors
    /// Why it cannot be evaluated.
    pub(super) fn holds(&self, evaluation: &mut Evaluation<'_>) -> Result<bool, String> {
        if self.uses.recipients && evaluation.given.facts.recipients.is_none() {
            return Err(match evaluation.given.facts.server {
                AGENTS => "a call of an agent has no `recipients`".to_owned(),
                _ => "the settings of this tool name no `recipients`".to_owned(),
            });
        }
        let size = evaluation.size_of(&self.uses);
        evaluation.take(self.work.steps(size))?;
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
}

fn is_match(patterns: &[Regex], text: &Cel, pattern: i64) -> Result<bool, ExecutionError> {
    let pattern = usize::try_from(pattern).ok().and_then(|number| patterns.get(number));
    match (text, pattern) {
        (Cel::String(text), Some(pattern)) => Ok(pattern.is_match(text)),
        _ => Err(ExecutionError::function_error("matches", "expects a text")),
    }
}

impl std::fmt::Debug for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.source)
    }
}

// The data and the steps that all conditions of one call share.

/// The evaluation of all rules' conditions for one call. They share the data and the allowed steps.
#[derive(Debug)]
pub struct Evaluation<'a> {
    given: Given<'a>,
    /// Of each argument.
    sizes: Option<HashMap<&'a str, Size>>,
    /// Remaining steps.
    steps: u64,
}

impl<'a> Evaluation<'a> {
    /// Starts the evaluation of conditions for a call.
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
    pub fn facts(&self) -> &Facts<'a> {
        &self.given.facts
    }

    /// The size of what a condition reads.
    fn size_of(&mut self, uses: &Uses) -> Size {
        let facts = &self.given.facts;
        let sizes = self.sizes.get_or_insert_with(|| {
            let arguments = facts.arguments.as_object().into_iter().flatten();
            arguments
                .map(|(name, value)| (name.as_str(), Size::new(value)))
                .collect()
        });
        let read = sizes
            .iter()
            .filter(|(name, _)| uses.all_arguments || uses.arguments.contains(**name));
        let arguments = read.fold(Size::default(), |sum, (name, size)| {
            sum.plus(Size::text(name)).plus(*size)
        });
        let recipients = facts.recipients.filter(|_| uses.recipients).map(Recipients::all);
        let texts = recipients.unwrap_or_default().into_iter().map(Size::text);
        // One value more: the list, or a name such as the user's.
        let read = texts.fold(arguments, Size::plus).plus(Size::text(facts.user));
        read.plus(uses.written())
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

/// The size of data.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    /// Values, including those inside lists and maps.
    values: u64,
    /// Bytes of texts and of map keys.
    bytes: u64,
}

impl Size {
    fn new(value: &Value) -> Self {
        match value {
            Value::String(text) => Self::text(text),
            Value::Array(items) => items.iter().map(Self::new).fold(Self::text(""), Self::plus),
            // A key is a value in a loop over a map.
            Value::Object(object) => object.iter().fold(Self::text(""), |sum, (name, value)| {
                sum.plus(Self::text(name)).plus(Self::new(value))
            }),
            _ => Self::text(""),
        }
    }

    fn text(text: &str) -> Self {
        let (values, bytes) = (1, text.len() as u64);
        Self { values, bytes }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            values: self.values + other.values,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// What a condition reads of a call.
#[derive(Debug, Default)]
struct Uses {
    recipients: bool,
    /// Single arguments, by name: a long text does not affect a condition that reads another argument.
    arguments: BTreeSet<String>,
    all_arguments: bool,
    /// The entries of the lists and maps in the condition itself, over which it may loop too.
    written: u64,
}

impl Uses {
    fn written(&self) -> Size {
        let (values, bytes) = (self.written, 0);
        Size { values, bytes }
    }
}

/// The most steps (of about 50 ns) for the conditions of all rules for one call. Measured: at most 50 ms on one core.
const MOST_STEPS: u64 = 1_000_000;
/// Bytes compared or copied in one step.
const BYTES_A_STEP: u64 = 64;
/// The most nested loops. A third level has no legitimate use, and multiplies the cost of each call.
const MOST_LOOPS: usize = 2;
/// A small call. A condition that takes too long even for this is an error in the policy.
const SMALL: Size = Size {
    values: 50,
    bytes: 4096,
};

/// What the evaluation of a condition can take, by the number of loops around its parts. A loop has as many rounds as
/// the data that the condition reads has values.
#[derive(Debug, Default)]
struct Work {
    parts: [u64; MOST_LOOPS + 1],
    /// How often all of the data may be read or copied.
    passes: [u64; MOST_LOOPS + 1],
}

impl Work {
    fn steps(&self, size: Size) -> u64 {
        let pass = size.values + size.bytes / BYTES_A_STEP;
        let mut rounds: u64 = 1;
        let mut steps: u64 = 0;
        for (parts, passes) in self.parts.iter().zip(self.passes) {
            let round = passes.saturating_mul(pass).saturating_add(*parts);
            steps = steps.saturating_add(rounds.saturating_mul(round));
            rounds = rounds.saturating_mul(size.values);
        }
        steps
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
            SESSION => {
                let fields = facts.session.fields();
                let fields = fields.map(|(name, value)| (CelMapKey::from(name), boxed(CelString::from(value))));
                return Some(CowVal::owned(CelMap::from(fields.collect::<HashMap<_, _>>())));
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

#[cfg(test)]
mod tests;
