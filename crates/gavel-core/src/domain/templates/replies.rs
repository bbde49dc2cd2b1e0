//! The fixed replies: what the user reads when no model wrote the answer (C-FR-010, C-FR-013).
//!
//! They are in `templates/responses.toml`, one for each outcome that can need one. Loading checks that none is missing,
//! none is unknown, and each uses only the placeholders of its outcome.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::Template;
use super::{Text, Texts, counted, time};
use crate::domain::decision::Outcome;

/// The values for the replies. Each outcome may use only some of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplyArgs<'a> {
    /// RATE_LIMITED, OVERLOADED: how long to wait. DEADLINE: the time limit.
    pub seconds: u64,
    /// USER_INPUT: what is too long, `message` or `history`.
    pub subject: &'a str,
    /// USER_INPUT: the allowed length, with its unit.
    pub limit: &'a str,
    /// LOOP_LIMIT: the number of iterations.
    pub iterations: u32,
    /// What has already been done.
    pub progress: Progress,
}

/// What the calls of a decision did before it ended. The reply must not hide it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    /// No tool ran, or no call had an effect.
    #[default]
    Nothing,
    /// At least one call took effect.
    Partial,
    /// A call was sent, and its outcome is unknown.
    InDoubt,
}

/// The fixed replies of one file.
#[derive(Clone, Debug)]
pub struct Templates {
    replies: BTreeMap<Outcome, Template>,
    partial: Template,
    in_doubt: Template,
    pub(super) texts: Texts,
}

/// An error in a template file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {field}: found {found}; allowed: {allowed}")]
pub struct TemplatesError {
    /// The file name.
    pub file: String,
    /// The reply.
    pub field: String,
    /// What was found.
    pub found: String,
    /// What is allowed.
    pub allowed: String,
}

const PARTIAL: &str = "PROGRESS:PARTIAL";
const IN_DOUBT: &str = "PROGRESS:IN_DOUBT";

impl Templates {
    /// The replies compiled into the binary.
    pub const BUILT_IN: &'static str = include_str!("../../../../../templates/responses.toml");

    /// The replies compiled into the binary, parsed.
    ///
    /// # Panics
    /// Never: a test parses them.
    pub fn built_in() -> Self {
        Self::from_toml(Self::BUILT_IN, "templates/responses.toml")
            .unwrap_or_else(|errors| unreachable!("a test parses the built-in replies: {errors:?}"))
    }

    /// Parses a template file: TOML, outcome = text. `file` is used only in errors.
    ///
    /// # Errors
    /// All errors at once: invalid TOML, an unknown or missing outcome, a blank text, a placeholder that the outcome
    /// does not provide.
    pub fn from_toml(text: &str, file: &str) -> Result<Self, Vec<TemplatesError>> {
        let mut errors = Vec::new();
        let mut error = |field: &str, found: String, allowed: String| {
            errors.push(TemplatesError {
                file: file.to_owned(),
                field: field.to_owned(),
                found,
                allowed,
            });
        };
        let mut texts = match toml::from_str::<BTreeMap<String, String>>(text) {
            Ok(texts) => texts,
            Err(invalid) => {
                error(
                    "the file",
                    invalid.to_string(),
                    "TOML with one text for each outcome".to_owned(),
                );
                return Err(errors);
            }
        };
        let mut take = |field: &str, names: &[&str]| match texts.remove(field) {
            None => {
                error(field, "nothing".to_owned(), "a text".to_owned());
                None
            }
            Some(text) if text.trim().is_empty() => {
                error(field, "a blank text".to_owned(), "a text for users".to_owned());
                None
            }
            Some(text) => match template(text.trim(), names) {
                Ok(template) => Some(template),
                Err((found, allowed)) => {
                    error(field, found, allowed);
                    None
                }
            },
        };
        let mut replies = BTreeMap::new();
        for outcome in Outcome::ALL {
            if let Some(names) = outcome.placeholders()
                && let Some(template) = take(outcome.as_str(), names)
            {
                replies.insert(*outcome, template);
            }
        }
        let mut fixed = Texts::new();
        for text in Text::ALL {
            if let Some(template) = take(text.as_str(), text.values()) {
                fixed.insert(*text, template);
            }
        }
        let partial = take(PARTIAL, &[]);
        let in_doubt = take(IN_DOUBT, &[]);
        for unknown in texts.keys() {
            let mut known: Vec<_> = Outcome::ALL
                .iter()
                .filter(|o| o.placeholders().is_some())
                .map(|o| o.as_str())
                .collect();
            known.extend([PARTIAL, IN_DOUBT]);
            known.extend(Text::ALL.iter().map(|text| text.as_str()));
            error(unknown, "an unknown reply".to_owned(), known.join(", "));
        }
        match (partial, in_doubt) {
            (Some(partial), Some(in_doubt)) if errors.is_empty() => Ok(Self {
                replies,
                partial,
                in_doubt,
                texts: fixed,
            }),
            _ => Err(errors),
        }
    }

    /// The reply for `outcome`, followed by what has already been done. An outcome that the model answers (SUCCESS,
    /// AMBIGUITY, OUT_OF_SCOPE) has no fixed reply. If the model left such an answer empty, the reply is that of
    /// INTERNAL.
    pub fn render(&self, outcome: Outcome, args: &ReplyArgs<'_>) -> String {
        let template = self
            .replies
            .get(&outcome)
            .or_else(|| self.replies.get(&Outcome::Internal));
        let mut reply = template.map(|template| fill(template, args)).unwrap_or_default();
        let progress = match args.progress {
            Progress::Nothing => return reply,
            Progress::Partial => &self.partial,
            Progress::InDoubt => &self.in_doubt,
        };
        reply.push(' ');
        reply.push_str(&fill(progress, args));
        reply
    }
}

/// A template with no other placeholders than `names`; otherwise what was found, and what is allowed.
fn template(text: &str, names: &[&str]) -> Result<Template, (String, String)> {
    let template = Template::parse(text).map_err(|error| (error.found, error.allowed))?;
    let Some(unknown) = template.names().find(|name| !names.contains(name)) else {
        return Ok(template);
    };
    let known: Vec<_> = names.iter().map(|name| format!("${{{name}}}")).collect();
    let known = if known.is_empty() {
        "no placeholder".to_owned()
    } else {
        known.join(", ")
    };
    Err((format!("${{{unknown}}}"), known))
}

fn fill(template: &Template, args: &ReplyArgs<'_>) -> String {
    let value = |name: &str| match name {
        "time" => Some(time(args.seconds)),
        "subject" => Some(args.subject.to_owned()),
        "limit" => Some(args.limit.to_owned()),
        "steps" => Some(counted(args.iterations.into(), "step")),
        _ => None,
    };
    template
        .render(value)
        .unwrap_or_else(|name| unreachable!("loading accepts no other name: {name}"))
}

static BUILT_IN: LazyLock<Templates> = LazyLock::new(Templates::built_in);

impl Text {
    /// The text with these values, by name.
    #[must_use]
    pub fn with(self, values: &[(&str, &str)]) -> String {
        let find = |name: &str| {
            let found = values.iter().find(|(known, _)| *known == name);
            Some(found.map_or_else(String::new, |(_, value)| (*value).to_owned()))
        };
        let rendered = BUILT_IN.texts.get(&self).map(|template| template.render(find));
        // Callers cut values before they become longer than a text may be.
        rendered.and_then(Result::ok).unwrap_or_default()
    }
}

#[cfg(test)]
mod built_in_tests {
    use super::*;

    /// R-16, C-FR-013: texts about runs contain no codes, no principals and no bracketed plurals.
    #[test]
    fn every_text_is_for_people() {
        for text in Text::ALL {
            let values: Vec<_> = text.values().iter().map(|name| (*name, "VALUE")).collect();
            let said = text.with(&values);
            assert!(said.len() > 5, "{text:?}: {said}");
            assert_eq!(
                said.matches("VALUE").count(),
                values.len(),
                "{text:?} names all its values: {said}"
            );
            for jargon in ["${", "(s)", "service:", "user:", "_limit", "in_doubt", "null", "HTTP"] {
                assert!(!said.contains(jargon), "{text:?}: {said}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const ARGS: ReplyArgs<'_> = ReplyArgs {
        seconds: 7,
        subject: "message",
        limit: "32 KiB",
        iterations: 5,
        progress: Progress::Nothing,
    };

    /// C-FR-013, C-FR-010
    #[test]
    fn every_outcome_has_words_for_a_person() {
        let templates = Templates::built_in();
        for outcome in Outcome::ALL {
            let reply = templates.render(*outcome, &ARGS);
            assert!(reply.len() > 20, "{outcome:?}: {reply}");
            for jargon in ["${", "null", "HTTP", "JSON", "token", "exception", "iteration"] {
                assert!(!reply.contains(jargon), "{outcome:?}: {reply}");
            }
        }
    }

    #[test]
    fn a_reply_tells_the_numbers_it_has() {
        let templates = Templates::built_in();
        assert!(templates.render(Outcome::RateLimited, &ARGS).contains("7 second"));
        let reply = templates.render(Outcome::UserInput, &ARGS);
        assert!(reply.contains("message") && reply.contains("32 KiB"), "{reply}");
    }

    /// Promise: truthful states. A partly finished task is never shown as done, nor as nothing done.
    #[test]
    fn a_reply_does_not_hide_what_has_happened() {
        let templates = Templates::built_in();
        let reply = |progress| templates.render(Outcome::ModelTimeout, &ReplyArgs { progress, ..ARGS });
        let nothing = reply(Progress::Nothing);
        let partial = reply(Progress::Partial);
        let in_doubt = reply(Progress::InDoubt);
        assert!(partial.starts_with(&nothing) && partial.len() > nothing.len());
        assert!(in_doubt.starts_with(&nothing) && in_doubt != partial);
    }

    #[test]
    fn a_file_is_refused_with_all_its_errors_at_once() {
        let text = Templates::BUILT_IN
            .replace("\"ERROR:DEADLINE\"", "\"ERROR:DEADLNE\"")
            .replace(
                "\"REFUSAL:POLICY_DENIED\" = \"",
                "\"REFUSAL:POLICY_DENIED\" = \"${seconds} ",
            );
        let errors = Templates::from_toml(&text, "x.toml").unwrap_err();
        let fields: Vec<_> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, ["REFUSAL:POLICY_DENIED", "ERROR:DEADLINE", "ERROR:DEADLNE"]);
        assert_eq!(errors[0].found, "${seconds}");
        assert_eq!(
            errors[0].to_string(),
            "x.toml: REFUSAL:POLICY_DENIED: found ${seconds}; allowed: no placeholder"
        );
    }

    #[test]
    fn text_that_is_not_toml_is_one_error() {
        let errors = Templates::from_toml("\"ERROR:DEADLINE\" = ", "x.toml").unwrap_err();
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].field, "the file");
    }
}
