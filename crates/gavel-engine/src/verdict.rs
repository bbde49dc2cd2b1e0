//! Verdict functions: explicit ways for a model to end its turn.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::domain::canonical;
use crate::domain::decision::Outcome;
use crate::domain::definition::Output;
use crate::domain::journal::{Completion, Verdict};
use crate::domain::model_schema::translate;
use crate::domain::nesting;
use crate::domain::plan::{Basis, PlanError};
use crate::domain::reflection::{REFLECT, Reflection};
use crate::domain::schema::{CheckError, Effort, JsonSchema};
use crate::domain::text::capped;
use crate::ports::model::Declaration;

pub use crate::domain::journal::COMPLETE_TASK;
/// The function with which an agent ends the loop that it is a step of.
pub const EXIT_LOOP: &str = "exit_loop";

/// A function that the engine handles itself.
#[derive(Clone, Debug)]
pub enum VerdictFunction {
    /// `request_clarification {question, kind}`.
    RequestClarification,
    /// `refuse {message, kind}`.
    Refuse,
    /// `complete_task {<outputName>: …}`.
    CompleteTask(Arc<OutputContract>),
    /// The same for the agent that plans: the plan is checked as a whole too, which no schema can say.
    CompletePlan(Arc<OutputContract>, Arc<Basis>),
    /// `exit_loop {<outputName>: …}`, or without an output schema `exit_loop {result}`.
    ExitLoop(Option<Arc<OutputContract>>),
    /// `reflect {…}`: what a step of a task has shown. A task may name these tools.
    Reflect(Arc<[String]>),
}

/// The output that an agent must return, with its declaration and its check.
#[derive(Debug)]
pub struct OutputContract {
    name: String,
    check: JsonSchema,
    parameters: Box<RawValue>,
}

impl OutputContract {
    /// A schema that Gemini cannot use is put into the description; it is checked nevertheless.
    ///
    /// # Errors
    /// The schema is invalid.
    pub fn new(output: &Output, schema: &Value) -> Result<Self, String> {
        let check = JsonSchema::compile(canonical::to_raw(schema)).map_err(|error| error.to_string())?;
        // References start at the root of the schema, which is not the root of the shown schema.
        let mut whole = json!({"type": "object", "properties": {&output.name: schema}, "required": [&output.name]});
        for key in ["$defs", "definitions"] {
            if let Some(defined) = schema.get(key) {
                whole[key] = defined.clone();
            }
        }
        let mut shown = translate(&whole, &[]).unwrap_or_else(|_| {
            let words = format!("Conforms to this JSON Schema: {schema}");
            let words = capped(&words, MOST_WORDS).into_owned();
            json!({"type": "object", "properties": {&output.name: {"description": words}}, "required": [&output.name]})
        });
        if let Some(Value::Object(property)) = shown.pointer_mut(&format!("/properties/{}", output.name)) {
            property
                .entry("description")
                .or_insert_with(|| Value::from(output.description.as_str()));
        }
        Ok(Self {
            name: output.name.clone(),
            check,
            parameters: canonical::to_raw(&shown),
        })
    }

    /// Reads the output from the arguments of a call.
    fn read(&self, args: &RawValue, effort: Effort) -> Result<Arc<str>, Unread> {
        if !nesting::within(args.get().as_bytes(), nesting::MAX_LEVELS) {
            return Err(Unread::Invalid(format!(
                "the output nests deeper than {} levels",
                nesting::MAX_LEVELS
            )));
        }
        let mut args: Map<String, Value> = serde_json::from_str(args.get()).map_err(unfit)?;
        let output = args
            .remove(&self.name)
            .ok_or_else(|| Unread::Invalid(format!("{:?} is missing; it is required", self.name)))?;
        if let Some(name) = args.keys().next() {
            let only = &self.name;
            return Err(Unread::Invalid(format!(
                "{name:?} is not known; the only argument is {only:?}"
            )));
        }
        self.check.check(&output, effort).map_err(|error| match error {
            CheckError::TooCostly => Unread::TooCostly,
            CheckError::Invalid(errors) => {
                let errors: Vec<_> = errors.iter().map(|error| format!("/{}{error}", self.name)).collect();
                Unread::Invalid(errors.join("; "))
            }
        })?;
        Ok(Arc::from(canonical::to_raw(&output).get()))
    }
}

/// Why the arguments of a verdict could not be read.
enum Unread {
    Invalid(String),
    /// The check took too much effort.
    TooCostly,
}

fn unfit(error: serde_json::Error) -> Unread {
    Unread::Invalid(error.to_string())
}

/// Maximum bytes of a schema in a description.
const MOST_WORDS: usize = 8 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoopResult {
    result: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Clarification {
    question: String,
    kind: ClarificationKind,
}

#[derive(Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum ClarificationKind {
    UnclearIntent,
    MultipleMatches,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refusal {
    message: String,
    kind: RefusalKind,
}

#[derive(Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum RefusalKind {
    OutOfScope,
    MissingPermission,
}

impl VerdictFunction {
    /// The verdict functions of the chat surface.
    pub const CHAT: [Self; 2] = [Self::RequestClarification, Self::Refuse];

    /// The name the model calls.
    pub fn name(&self) -> &'static str {
        match self {
            Self::RequestClarification => "request_clarification",
            Self::Refuse => "refuse",
            Self::CompleteTask(_) | Self::CompletePlan(..) => COMPLETE_TASK,
            Self::ExitLoop(_) => EXIT_LOOP,
            Self::Reflect(_) => REFLECT,
        }
    }

    /// The declaration that the model sees.
    pub fn declaration(&self) -> Declaration {
        match self {
            Self::CompleteTask(contract) | Self::CompletePlan(contract, _) => Declaration {
                name: self.name().to_owned(),
                description: "Hand in your output; this ends the task. Call it alone, never together with another \
                              function. Text outside of it is not read."
                    .to_owned(),
                parameters: contract.parameters.clone(),
            },
            Self::ExitLoop(Some(contract)) => Declaration {
                name: self.name().to_owned(),
                description: "Hand in your output, and say that no further round is needed. \
                              Call it alone, never together with another function."
                    .to_owned(),
                parameters: contract.parameters.clone(),
            },
            Self::ExitLoop(None) => Declaration::own(
                self.name(),
                "Say that the work is done and no further round is needed. \
                 Call it alone, never together with another function.",
                r#"{"type":"object","properties":{"result":{"type":"string","minLength":1,"description":"The final result, whole."}},"required":["result"]}"#,
            ),
            Self::Reflect(tools) => Declaration {
                name: self.name().to_owned(),
                description:
                    "Say what the last step showed, and whether the task is complete. Call it alone, and only when \
                              you are asked to reflect."
                        .to_owned(),
                parameters: {
                    let schema = Reflection::schema(tools);
                    canonical::to_raw(&translate(&schema, &[]).unwrap_or(schema))
                },
            },
            Self::RequestClarification => Declaration::own(
                self.name(),
                "Ask the person one question instead of acting, when it is not clear what they want. \
                 Call it alone, never together with another function.",
                r#"{"type":"object","properties":{"question":{"type":"string","minLength":1,"description":"The question, in the person's language."},"kind":{"type":"string","enum":["UNCLEAR_INTENT","MULTIPLE_MATCHES"],"description":"MULTIPLE_MATCHES when a tool result held several candidates, else UNCLEAR_INTENT."}},"required":["question","kind"]}"#,
            ),
            Self::Refuse => Declaration::own(
                self.name(),
                "Decline politely, with the reason, what you cannot or must not do. \
                 Call it alone, never together with another function.",
                r#"{"type":"object","properties":{"message":{"type":"string","minLength":1,"description":"The reason and what you can do instead, in the person's language."},"kind":{"type":"string","enum":["OUT_OF_SCOPE","MISSING_PERMISSION"],"description":"MISSING_PERMISSION when a tool said that the person lacks the right, else OUT_OF_SCOPE."}},"required":["message","kind"]}"#,
            ),
        }
    }

    /// Reads the arguments. May take a second, depending on the output's schema.
    pub(super) fn read(&self, args: &RawValue) -> Result<Verdict, String> {
        self.read_within(args, Effort::Full).map_err(|unread| match unread {
            Unread::Invalid(message) => message,
            Unread::TooCostly => CheckError::TooCostly.to_string(),
        })
    }

    /// The same for fast checks; `None` if the output's schema takes longer.
    pub(super) fn read_quickly(&self, args: &RawValue) -> Option<Result<Verdict, String>> {
        match self.read_within(args, Effort::Quick) {
            Ok(verdict) => Some(Ok(verdict)),
            Err(Unread::Invalid(message)) => Some(Err(message)),
            Err(Unread::TooCostly) => None,
        }
    }

    fn read_within(&self, args: &RawValue, effort: Effort) -> Result<Verdict, Unread> {
        match self {
            Self::CompleteTask(contract) => Ok(Verdict::Complete {
                output: Completion::Output(contract.read(args, effort)?),
                exits_loop: false,
            }),
            Self::CompletePlan(contract, basis) => {
                let draft = contract.read(args, effort)?;
                basis.plan(&draft).map_err(|errors| {
                    let place = |error: &PlanError| format!("/{}{}: {}", contract.name, error.pointer, error.detail);
                    Unread::Invalid(errors.iter().map(place).collect::<Vec<_>>().join("; "))
                })?;
                Ok(Verdict::Complete {
                    output: Completion::Output(draft),
                    exits_loop: false,
                })
            }
            Self::ExitLoop(Some(contract)) => Ok(Verdict::Complete {
                output: Completion::Output(contract.read(args, effort)?),
                exits_loop: true,
            }),
            Self::ExitLoop(None) => {
                let read: LoopResult = serde_json::from_str(args.get()).map_err(unfit)?;
                Ok(Verdict::Complete {
                    output: Completion::Text(said(read.result, "result").map_err(Unread::Invalid)?),
                    exits_loop: true,
                })
            }
            Self::Reflect(_) => {
                if !nesting::within(args.get().as_bytes(), nesting::MAX_LEVELS) {
                    let levels = nesting::MAX_LEVELS;
                    return Err(Unread::Invalid(format!(
                        "the reflection nests deeper than {levels} levels"
                    )));
                }
                let read: Reflection = serde_json::from_str(args.get()).map_err(unfit)?;
                Ok(Verdict::Reflect(Box::new(read)))
            }
            Self::RequestClarification => {
                let read: Clarification = serde_json::from_str(args.get()).map_err(unfit)?;
                let outcome = match read.kind {
                    ClarificationKind::UnclearIntent => Outcome::UnclearIntent,
                    ClarificationKind::MultipleMatches => Outcome::MultipleMatches,
                };
                Ok(Verdict::Clarify {
                    question: said(read.question, "question").map_err(Unread::Invalid)?,
                    outcome,
                })
            }
            Self::Refuse => {
                let read: Refusal = serde_json::from_str(args.get()).map_err(unfit)?;
                let outcome = match read.kind {
                    RefusalKind::OutOfScope => Outcome::OutOfScope,
                    RefusalKind::MissingPermission => Outcome::MissingPermission,
                };
                Ok(Verdict::Refuse {
                    message: said(read.message, "message").map_err(Unread::Invalid)?,
                    outcome,
                })
            }
        }
    }
}

fn said(text: String, field: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        Err(format!("{field:?} must not be empty"))
    } else {
        Ok(text)
    }
}
