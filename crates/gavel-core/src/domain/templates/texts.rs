//! Fixed texts about runs and approvals, for people. They are in `templates/responses.toml`, with the fixed replies.

use std::collections::BTreeMap;

use super::template::Template;

macro_rules! texts {
    ($($(#[$doc:meta])* $variant:ident = $name:literal [$($value:literal),*],)+) => {
        /// A fixed text of a run or an approval.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Text { $($(#[$doc])* $variant,)+ }

        impl Text {
            /// Every text.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Its name in the file.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// The placeholders it may use.
            pub(super) const fn values(self) -> &'static [&'static str] {
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

/// The texts of a file.
pub(super) type Texts = BTreeMap<Text, Template>;

/// A number of things: `1 step`, `3 steps`.
#[must_use]
pub fn counted(many: u64, thing: &str) -> String {
    match many {
        1 => format!("1 {thing}"),
        many => format!("{many} {thing}s"),
    }
}

/// A duration for people, from whole seconds: `1 second`, `90 seconds`, `5 minutes`.
#[must_use]
pub fn time(seconds: u64) -> String {
    match seconds {
        0..120 => counted(seconds, "second"),
        _ if seconds.is_multiple_of(3600) => counted(seconds / 3600, "hour"),
        _ if seconds.is_multiple_of(60) => counted(seconds / 60, "minute"),
        _ => counted(seconds, "second"),
    }
}

/// The text as a sentence, with a full stop if it lacks one.
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
