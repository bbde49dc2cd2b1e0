//! Fixed texts of runs and approvals, for people. They stand in `templates/responses.toml`, beside the fixed replies.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::replies::Templates;
use super::template::Template;

macro_rules! texts {
    ($($(#[$doc:meta])* $variant:ident = $name:literal [$($value:literal),*],)+) => {
        /// A fixed text of a run or an approval.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Text { $($(#[$doc])* $variant,)+ }

        impl Text {
            /// Every one there is.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Its name in the file.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// What it may name.
            pub(super) const fn values(self) -> &'static [&'static str] {
                match self { $(Self::$variant => &[$($value),*],)+ }
            }
        }
    };
}

texts! {
    /// Another run of the thread comes first.
    Queued = "RUN:QUEUED" [],
    /// It is being worked on.
    Working = "RUN:WORKING" [],
    /// A person cancelled it.
    Cancelled = "RUN:CANCELLED" [],
    /// Its steps are used up.
    StepLimit = "RUN:STEP_LIMIT" ["steps"],
    /// Its time is used up.
    TimeLimit = "RUN:TIME_LIMIT" ["time"],
    /// Its tokens are used up.
    TokenLimit = "RUN:TOKEN_LIMIT" ["tokens"],
    /// A step of its flow stopped before its end.
    StepCut = "RUN:STEP_CUT" [],
    /// Actions whose outcome is unknown.
    InDoubt = "RUN:IN_DOUBT" ["actions"],
    /// The same of a run that can be resumed.
    ResumeInDoubt = "RUN:RESUME_IN_DOUBT" [],
    /// The same call again and again.
    DoomLoop = "RUN:DOOM_LOOP" ["tool", "times"],
    /// It ended in words where its output was due.
    MissingOutput = "RUN:MISSING_OUTPUT" [],
    /// Its output was invalid again and again.
    InvalidOutput = "RUN:INVALID_OUTPUT" ["times", "errors"],
    /// It is not there to be continued.
    Unavailable = "RUN:UNAVAILABLE" [],
    /// A fault of gavel.
    Broken = "RUN:BROKEN" [],
    /// Process after process was lost with it.
    ProcessLost = "RUN:PROCESS_LOST" ["many"],
    /// It is longer than it may be.
    SizeLimit = "RUN:SIZE_LIMIT" [],
    /// A person rejected a call, and that ended it.
    Rejected = "RUN:REJECTED" ["action"],
    /// What was done all the same.
    Done = "RUN:DONE" ["actions"],
    /// What may have been done.
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
    /// The model gave no usable answer.
    ModelMalformed = "MODEL:MALFORMED" [],
    /// The provider blocked the prompt or the answer.
    ModelBlocked = "MODEL:BLOCKED" [],
    /// An approval is asked for.
    ApprovalRequest = "APPROVAL:REQUEST" ["call", "reason"],
    /// An approver approved an action once.
    Approved = "APPROVAL:APPROVED" ["by", "tool"],
    /// An approver approved an action, and always allows its recipients.
    AlwaysAllowed = "APPROVAL:ALWAYS_ALLOWED" ["by", "tool"],
    /// An approver rejected an action.
    ActionRejected = "APPROVAL:REJECTED" ["by", "tool"],
    /// Why, after one of the three.
    Reason = "APPROVAL:REASON" ["reason"],
    /// An action was executed.
    Executed = "ACTION:EXECUTED" ["action"],
    /// The id of its result, after that.
    ResultId = "ACTION:RESULT_ID" ["id"],
    /// It is not known whether an action was executed.
    OutcomeUnknown = "ACTION:OUTCOME_UNKNOWN" ["action"],
    /// An action in doubt was executed, as somebody found out.
    Happened = "SETTLEMENT:HAPPENED" ["by", "tool"],
    /// It was not.
    DidNotHappen = "SETTLEMENT:DID_NOT_HAPPEN" ["by", "tool"],
}

static BUILT_IN: LazyLock<Templates> = LazyLock::new(Templates::built_in);

impl Text {
    /// The text with these values, by their names.
    #[must_use]
    pub fn with(self, values: &[(&str, &str)]) -> String {
        let find = |name: &str| {
            let found = values.iter().find(|(known, _)| *known == name);
            Some(found.map_or_else(String::new, |(_, value)| (*value).to_owned()))
        };
        let rendered = BUILT_IN.texts.get(&self).map(|template| template.render(find));
        // A value longer than any text may be is cut off before it comes here.
        rendered.and_then(Result::ok).unwrap_or_default()
    }
}

/// The texts as a file has them.
pub(super) type Texts = BTreeMap<Text, Template>;

/// A number of things: `1 step`, `3 steps`.
#[must_use]
pub fn counted(many: u64, thing: &str) -> String {
    match many {
        1 => format!("1 {thing}"),
        many => format!("{many} {thing}s"),
    }
}

/// A time for people, from whole seconds: `1 second`, `90 seconds`, `5 minutes`.
#[must_use]
pub fn time(seconds: u64) -> String {
    match seconds {
        0..120 => counted(seconds, "second"),
        _ if seconds.is_multiple_of(3600) => counted(seconds / 3600, "hour"),
        _ if seconds.is_multiple_of(60) => counted(seconds / 60, "minute"),
        _ => counted(seconds, "second"),
    }
}

/// The words as a sentence of their own.
#[must_use]
pub fn sentence(words: &str) -> String {
    let words = words.trim_end();
    match words.ends_with(['.', '!', '?', ']']) {
        true => words.to_owned(),
        false => format!("{words}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R-16, C-FR-013: what a person reads of a run has no code, no principal and no bracketed plural in it.
    #[test]
    fn every_text_is_for_people() {
        for text in Text::ALL {
            let values: Vec<_> = text.values().iter().map(|name| (*name, "VALUE")).collect();
            let said = text.with(&values);
            assert!(said.len() > 5, "{text:?}: {said}");
            assert_eq!(
                said.matches("VALUE").count(),
                values.len(),
                "{text:?} tells what it knows: {said}"
            );
            for jargon in ["${", "(s)", "service:", "user:", "_limit", "in_doubt", "null", "HTTP"] {
                assert!(!said.contains(jargon), "{text:?}: {said}");
            }
        }
    }

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
