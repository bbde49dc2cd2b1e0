//! The data and the steps that all conditions of one call share.

use std::collections::HashMap;
use std::sync::OnceLock;

use cel::common::types::{CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt};
use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;
use serde_json::Value;

use super::super::{Facts, Recipients};
use super::cost::{MOST_STEPS, Size, Sizes};
use super::parse::SESSION;

/// The evaluation of all rules' conditions for one call. They share the data and the allowed steps.
#[derive(Debug)]
pub struct Evaluation<'a> {
    pub(super) given: Given<'a>,
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

    pub(super) fn sizes(&mut self) -> &Sizes<'a> {
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

    pub(super) fn take(&mut self, steps: u64) -> Result<(), String> {
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
pub(super) struct Given<'a> {
    pub(super) facts: Facts<'a>,
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
pub(super) fn cel(value: &Value) -> Box<dyn Val + '_> {
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
