//! The condition of a rule: an expression in CEL, the Common Expression Language.
//!
//! The operator writes the expression, and a model writes the arguments that it reads. So anything that cannot be
//! evaluated, is not a boolean, or would take too long is an error, and the policy denies the call. Names are checked
//! when the file is parsed; otherwise only the first call would reveal a misspelled variable.

mod cost;
mod parse;

use std::collections::HashMap;
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

use self::cost::{MOST_STEPS, Size, Sizes};
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
    /// Steps to read 64 bytes, for each pattern.
    pattern_steps: Vec<u64>,
    uses_recipients: bool,
    uses_arguments: bool,
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

    /// Whether it reads the arguments of a call, or its recipients, which are arguments.
    pub(super) fn uses_arguments(&self) -> bool {
        self.uses_arguments || self.uses_recipients
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
            let recipients = facts.recipients.map(Recipients::all).unwrap_or_default();
            let session = facts.session.fields().map(|(_, value)| value);
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
                name: names
                    .into_iter()
                    .chain(session)
                    .map(Size::text)
                    .fold(Size::text(""), Size::most),
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
