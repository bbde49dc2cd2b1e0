//! Texts with placeholders, and the fixed replies made from them (C-FR-013).

mod replies;

pub use replies::{Progress, ReplyArgs};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::names::names;

/// The longest rendered text, in bytes: twice the longest request body, so that the longest input fits beside the
/// longest text. The length is checked before the text is built.
pub const MOST_RENDERED: usize = 2 << 20;

/// Why a text cannot be rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError<'t> {
    /// There is no value of this name.
    #[error("no value for ${{{0}}}")]
    Missing(&'t str),
    /// It would have this many bytes, more than [`MOST_RENDERED`].
    #[error("it would be {0} bytes long with its values inserted; at most {MOST_RENDERED} are allowed")]
    TooLong(usize),
}

/// A text, split at its placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// A name, and the byte offset of its `${` in the text.
    Name(String, usize),
}

/// An invalid placeholder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("found {found}; allowed: {allowed}")]
pub struct TemplateError {
    /// Byte offset in the text.
    pub at: usize,
    /// What was found.
    pub found: String,
    /// What is allowed.
    pub allowed: String,
}

impl Template {
    /// Splits `text`.
    ///
    /// # Errors
    /// A `${` without `}`, or with an invalid name between them.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let (template, malformed) = Self::read(text);
        match malformed.first() {
            Some(&at) => {
                let (found, allowed) = malformed_at(text, at);
                Err(TemplateError { at, found, allowed })
            }
            None => Ok(template),
        }
    }

    /// Like [`Template::parse`], for callers that report all errors. Invalid placeholders remain as literal text. Also
    /// returns their byte offsets; [`malformed_at`] describes one.
    pub fn read(text: &str) -> (Self, Vec<usize>) {
        let mut pieces = Vec::new();
        let mut malformed = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            if let Some(before) = rest[..at].strip_suffix('$') {
                literal.push_str(before);
                literal.push_str("${");
                rest = &rest[at + 2..];
                continue;
            }
            literal.push_str(&rest[..at]);
            // Searches no further than a name can reach: otherwise each of many `${` would scan to a far `}`.
            let name = name_at_start(&rest[at + 2..]);
            let after = rest[at + 2 + name.len()..]
                .strip_prefix('}')
                .filter(|_| !name.is_empty());
            let Some(after) = after else {
                malformed.push(text.len() - rest.len() + at);
                literal.push_str("${");
                rest = &rest[at + 2..];
                continue;
            };
            if !literal.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut literal)));
            }
            pieces.push(Piece::Name(name.to_owned(), text.len() - rest.len() + at));
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal));
        }
        (Self { pieces }, malformed)
    }

    /// The names of its placeholders, in order, with repetitions.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.places().map(|(name, _)| name)
    }

    /// The same names, each with the byte offset of its `${` in the text.
    pub fn places(&self) -> impl Iterator<Item = (&str, usize)> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Name(name, at) => Some((name.as_str(), *at)),
            Piece::Text(_) => None,
        })
    }

    /// Length without the values, in bytes.
    pub fn fixed(&self) -> usize {
        let lengths = self.pieces.iter().map(|piece| match piece {
            Piece::Text(text) => text.len(),
            Piece::Name(..) => 0,
        });
        lengths.sum()
    }

    /// Renders the text. `value` is called once for each name, even if the name occurs several times.
    ///
    /// # Errors
    /// The first name without a value, or the text would be too long.
    pub fn render(&self, value: impl Fn(&str) -> Option<String>) -> Result<String, RenderError<'_>> {
        let mut values: HashMap<&str, String> = HashMap::new();
        let mut length = self.fixed();
        for (name, _) in self.places() {
            let value = match values.entry(name) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(value(name).ok_or(RenderError::Missing(name))?),
            };
            length = length.saturating_add(value.len());
        }
        if length > MOST_RENDERED {
            return Err(RenderError::TooLong(length));
        }
        let mut out = String::with_capacity(length);
        for piece in &self.pieces {
            out.push_str(match piece {
                Piece::Text(text) => text,
                Piece::Name(name, _) => values.get(name.as_str()).map_or("", String::as_str),
            });
        }
        Ok(out)
    }
}

fn name_at_start(text: &str) -> &str {
    let in_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    let end = text.bytes().position(|b| !in_name(b)).unwrap_or(text.len());
    &text[..end]
}

/// What was found at a `${` that begins no placeholder, and what is allowed there.
pub(crate) fn malformed_at(text: &str, at: usize) -> (String, String) {
    let shown: String = text[at..].chars().take(24).collect();
    let allowed = "`${name}` with letters, digits, `_` or `-`, or `$${` for a literal `${`";
    (format!("{shown:?}"), allowed.to_owned())
}

macro_rules! texts {
    ($($(#[$doc:meta])* $variant:ident = $name:literal [$($value:literal),*],)+) => {
        names! {
            /// A fixed text of a run or an approval.
            Text { $($(#[$doc])* $variant = $name,)+ }
        }

        impl Text {
            /// The placeholders it may use.
            #[cfg(test)]
            const fn values(self) -> &'static [&'static str] {
                match self { $(Self::$variant => &[$($value),*],)+ }
            }
        }
    };
}

texts! {
    /// The run waits for an earlier run of its thread.
    Queued = "RUN:QUEUED" [],
    /// The run is in progress.
    Working = "RUN:WORKING" [],
    /// The run was cancelled.
    Cancelled = "RUN:CANCELLED" [],
    /// It reached its step limit.
    StepLimit = "RUN:STEP_LIMIT" ["steps"],
    /// It reached its time limit.
    TimeLimit = "RUN:TIME_LIMIT" ["time"],
    /// Its deadline passed.
    Deadline = "RUN:DEADLINE" ["time"],
    /// It reached its token limit.
    TokenLimit = "RUN:TOKEN_LIMIT" ["tokens"],
    /// A step of its flow was stopped early.
    StepCut = "RUN:STEP_CUT" [],
    /// Actions whose outcome is unknown.
    InDoubt = "RUN:IN_DOUBT" ["actions"],
    /// The same for a run that can be resumed.
    ResumeInDoubt = "RUN:RESUME_IN_DOUBT" [],
    /// It repeated the same call.
    DoomLoop = "RUN:DOOM_LOOP" ["tool", "times"],
    /// It ended with text where its structured output was required.
    MissingOutput = "RUN:MISSING_OUTPUT" [],
    /// Its output was repeatedly invalid.
    InvalidOutput = "RUN:INVALID_OUTPUT" ["times", "errors"],
    /// A tool or model that it needs is unavailable.
    Unavailable = "RUN:UNAVAILABLE" [],
    /// A fault of gavel.
    Broken = "RUN:BROKEN" [],
    /// Several processes in a row died while they ran it.
    ProcessLost = "RUN:PROCESS_LOST" ["many"],
    /// It exceeded its size limit.
    SizeLimit = "RUN:SIZE_LIMIT" [],
    /// An approver rejected a call, and that ended the run.
    Rejected = "RUN:REJECTED" ["action"],
    /// Actions that were done although the run failed.
    Done = "RUN:DONE" ["actions"],
    /// Actions whose outcome is unknown.
    MaybeDone = "RUN:MAYBE_DONE" ["actions"],
    /// The model could not be reached.
    ModelUnavailable = "MODEL:UNAVAILABLE" [],
    /// The provider does not accept the credentials.
    ModelCredentials = "MODEL:CREDENTIALS" [],
    /// The provider does not permit the use of the model.
    ModelPermission = "MODEL:PERMISSION" [],
    /// The provider has no such model.
    ModelUnknown = "MODEL:NO_SUCH_MODEL" [],
    /// The quota at the provider is used up.
    ModelQuota = "MODEL:QUOTA" [],
    /// The provider refused the request.
    ModelRejected = "MODEL:REJECTED" [],
    /// The model took too long.
    ModelTimeout = "MODEL:TIMEOUT" [],
    /// The model returned no usable answer.
    ModelMalformed = "MODEL:MALFORMED" [],
    /// The model's answer was cut off.
    ModelCut = "MODEL:CUT" [],
    /// The provider blocked the prompt or the answer.
    ModelBlocked = "MODEL:BLOCKED" [],
    /// An approval request.
    ApprovalRequest = "APPROVAL:REQUEST" ["call", "reason"],
    /// An approver approved an action once.
    Approved = "APPROVAL:APPROVED" ["by", "tool"],
    /// An approver approved an action, and always allows its recipients.
    AlwaysAllowed = "APPROVAL:ALWAYS_ALLOWED" ["by", "tool"],
    /// An approver rejected an action.
    ActionRejected = "APPROVAL:REJECTED" ["by", "tool"],
    /// The reason, after one of the three.
    Reason = "APPROVAL:REASON" ["reason"],
    /// An action was executed.
    Executed = "ACTION:EXECUTED" ["action"],
    /// The id of its result, after that.
    ResultId = "ACTION:RESULT_ID" ["id"],
    /// The outcome of an action is unknown.
    OutcomeUnknown = "ACTION:OUTCOME_UNKNOWN" ["action"],
    /// A person settled an in-doubt action as executed.
    Happened = "SETTLEMENT:HAPPENED" ["by", "tool"],
    /// A person settled an in-doubt action as not executed.
    DidNotHappen = "SETTLEMENT:DID_NOT_HAPPEN" ["by", "tool"],
}

/// A number of things: `1 step`, `3 steps`.
pub fn counted(many: u64, thing: &str) -> String {
    match many {
        1 => format!("1 {thing}"),
        many => format!("{many} {thing}s"),
    }
}

/// A duration for people, from whole seconds: `1 second`, `90 seconds`, `5 minutes`.
pub fn time(seconds: u64) -> String {
    match seconds {
        0..120 => counted(seconds, "second"),
        _ if seconds.is_multiple_of(3600) => counted(seconds / 3600, "hour"),
        _ if seconds.is_multiple_of(60) => counted(seconds / 60, "minute"),
        _ => counted(seconds, "second"),
    }
}

/// The text as a sentence, with a full stop if it lacks one.
pub fn sentence(words: &str) -> String {
    let words = words.trim_end();
    match words.ends_with(['.', '!', '?', ']']) {
        true => words.to_owned(),
        false => format!("{words}."),
    }
}

#[cfg(test)]
mod template_tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;

    fn render(text: &str) -> String {
        Template::parse(text)
            .unwrap()
            .render(|name| Some(format!("<{name}>")))
            .unwrap()
    }

    #[test]
    fn placeholders_are_filled_and_the_rest_remains() {
        assert_eq!(render("a ${b} c ${b-2}${b}"), "a <b> c <b-2><b>");
        assert_eq!(render("5 $ or $5, {x} and $${y}"), "5 $ or $5, {x} and ${y}");
    }

    #[test]
    fn a_value_is_not_read_for_placeholders_again() {
        let template = Template::parse("${a}").unwrap();
        assert_eq!(template.render(|_| Some("${a}".to_owned())), Ok("${a}".to_owned()));
    }

    #[test]
    fn a_placeholder_that_is_none_is_an_error() {
        for text in ["${", "x ${a", "${}", "${a b}", "${env:HOME}"] {
            let error = Template::parse(text).unwrap_err();
            assert_eq!(Some(error.at), text.find("${"), "{text}");
        }
    }

    #[test]
    fn what_is_no_placeholder_hides_none_behind_it() {
        let (template, malformed) = Template::read("${a} ${ ${b} ${c d} ${e");
        assert_eq!(template.names().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(malformed, [5, 13, 20]);
    }

    #[test]
    fn a_missing_value_is_named() {
        assert_eq!(
            Template::parse("${a}${b}")
                .unwrap()
                .render(|name| (name == "a").then(String::new)),
            Err(RenderError::Missing("b"))
        );
    }

    #[test]
    fn a_text_that_would_be_too_long_is_not_made() {
        let half = "x".repeat(MOST_RENDERED / 2);
        let asked = std::cell::Cell::new(0);
        let value = |_: &str| {
            asked.set(asked.get() + 1);
            Some(half.clone())
        };
        let fits = Template::parse("${a}${a}").unwrap();
        assert_eq!(fits.render(value).unwrap().len(), MOST_RENDERED);
        // Rendered, it would have a terabyte.
        let many = Template::parse(&"${a}".repeat(1 << 20)).unwrap();
        assert_eq!(many.render(value), Err(RenderError::TooLong((1 << 20) * half.len())));
        assert_eq!(asked.get(), 2, "each value is requested once");
        assert_eq!(Template::parse("a ${b} $${c}").unwrap().fixed(), "a  ${c}".len());
    }

    proptest! {
        #[test]
        fn a_text_without_a_dollar_is_left_alone(text in "[^$]*") {
            prop_assert_eq!(render(&text), text);
        }

        #[test]
        fn an_escaped_text_comes_back(text in "[a-z$]{0,6}([$][{][a-z]{0,3}[}]?){0,3}[a-z]{0,3}") {
            // A `$` before `${` would become part of the escape.
            prop_assume!(!text.contains("$${"));
            prop_assert_eq!(render(&text.replace("${", "$${")), text);
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC*") {
            let _ = Template::parse(&text);
        }
    }
}

#[cfg(test)]
mod texts_tests {
    use super::*;

    #[test]
    fn numbers_and_times_read_as_people_say_them() {
        for (seconds, said) in [
            (0, "0 seconds"),
            (1, "1 second"),
            (90, "90 seconds"),
            (300, "5 minutes"),
            (7200, "2 hours"),
            (3661, "3661 seconds"),
        ] {
            assert_eq!(time(seconds), said);
        }
        assert_eq!(
            (counted(1, "step"), counted(3, "step")),
            ("1 step".to_owned(), "3 steps".to_owned())
        );
        assert_eq!(
            (sentence("it ended"), sentence("It ended. ")),
            ("it ended.".to_owned(), "It ended.".to_owned())
        );
    }
}
