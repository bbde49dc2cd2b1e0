//! The condition of a rule: an expression in CEL, the Common Expression Language.
//!
//! The operator writes the expression, and a model writes the arguments that it reads. So anything that cannot be
//! evaluated, is not a boolean, or would take too long is an error, and the policy denies the call. Names are checked
//! when the file is parsed; otherwise only the first call would reveal a misspelled variable.

mod cost;
mod evaluation;
mod parse;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use cel::common::ast::IdedExpr;
use cel::extractors::This;
use cel::{Context, Env, ExecutionError, Value as Cel};
use regex::Regex;

use self::cost::Sizes;
pub use self::evaluation::Evaluation;
use self::parse::{PARSER_STACK, parse};
use super::AGENTS;

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

#[cfg(test)]
mod tests;
