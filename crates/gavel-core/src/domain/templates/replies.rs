//! The fixed replies: what the user reads when no model wrote the answer (C-FR-010, C-FR-013).
//!
//! They are in `templates/responses.toml`, one for each outcome that can need one. A test checks that none is missing,
//! none is unknown, and each uses only the placeholders of its outcome.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::Template;
use super::{Text, counted, time};
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

/// The texts that are compiled into the binary, by name.
static TEXTS: LazyLock<BTreeMap<String, Template>> = LazyLock::new(|| {
    let texts: BTreeMap<String, String> = toml::from_str(include_str!("../../../../../templates/responses.toml"))
        .unwrap_or_else(|error| unreachable!("a test reads the fixed texts: {error}"));
    let template = |(name, text): (String, String)| (name, Template::read(text.trim()).0);
    texts.into_iter().map(template).collect()
});

const PARTIAL: &str = "PROGRESS:PARTIAL";
const IN_DOUBT: &str = "PROGRESS:IN_DOUBT";

impl Outcome {
    /// Its reply, followed by what has already been done. An outcome that the model answers (SUCCESS, AMBIGUITY,
    /// OUT_OF_SCOPE) has no fixed reply. If the model left such an answer empty, the reply is that of INTERNAL.
    pub fn reply(self, args: &ReplyArgs<'_>) -> String {
        let template = TEXTS.get(self.as_str()).or_else(|| TEXTS.get(Self::Internal.as_str()));
        let mut reply = template.map(|template| fill(template, args)).unwrap_or_default();
        let progress = match args.progress {
            Progress::Nothing => return reply,
            Progress::Partial => PARTIAL,
            Progress::InDoubt => IN_DOUBT,
        };
        reply.push(' ');
        reply.push_str(&fill(&TEXTS[progress], args));
        reply
    }
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
        .unwrap_or_else(|name| unreachable!("a test knows each name: {name}"))
}

impl Text {
    /// The text with these values, by name.
    #[must_use]
    pub fn with(self, values: &[(&str, &str)]) -> String {
        let find = |name: &str| {
            let found = values.iter().find(|(known, _)| *known == name);
            Some(found.map_or_else(String::new, |(_, value)| (*value).to_owned()))
        };
        let rendered = TEXTS.get(self.as_str()).map(|template| template.render(find));
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
        for outcome in Outcome::ALL {
            let reply = outcome.reply(&ARGS);
            assert!(reply.len() > 20, "{outcome:?}: {reply}");
            for jargon in ["${", "null", "HTTP", "JSON", "token", "exception", "iteration"] {
                assert!(!reply.contains(jargon), "{outcome:?}: {reply}");
            }
        }
    }

    #[test]
    fn a_reply_tells_the_numbers_it_has() {
        assert!(Outcome::RateLimited.reply(&ARGS).contains("7 second"));
        let reply = Outcome::UserInput.reply(&ARGS);
        assert!(reply.contains("message") && reply.contains("32 KiB"), "{reply}");
    }

    /// Promise: truthful states. A partly finished task is never shown as done, nor as nothing done.
    #[test]
    fn a_reply_does_not_hide_what_has_happened() {
        let reply = |progress| Outcome::ModelTimeout.reply(&ReplyArgs { progress, ..ARGS });
        let nothing = reply(Progress::Nothing);
        let partial = reply(Progress::Partial);
        let in_doubt = reply(Progress::InDoubt);
        assert!(partial.starts_with(&nothing) && partial.len() > nothing.len());
        assert!(in_doubt.starts_with(&nothing) && in_doubt != partial);
    }

    #[test]
    fn the_file_has_what_is_used_and_nothing_else() {
        let outcomes = Outcome::ALL.iter();
        let outcomes = outcomes.filter_map(|outcome| Some((outcome.as_str(), outcome.placeholders()?)));
        let texts = Text::ALL.iter().map(|text| (text.as_str(), text.values()));
        let known: BTreeMap<_, _> = outcomes
            .chain(texts)
            .chain([(PARTIAL, &[][..]), (IN_DOUBT, &[])])
            .collect();
        assert_eq!(
            TEXTS.keys().map(String::as_str).collect::<Vec<_>>(),
            known.keys().copied().collect::<Vec<_>>()
        );
        for (name, template) in &*TEXTS {
            for placeholder in template.names() {
                assert!(known[name.as_str()].contains(&placeholder), "{name}: {placeholder}");
            }
        }
    }
}
