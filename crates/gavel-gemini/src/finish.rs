//! Why a candidate ended or a prompt was blocked, classified by what it means for the caller.

use serde::{Deserialize, Deserializer};

use super::wire_enum::{label, read_enum};

/// `finishReason`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FinishReason {
    /// The normal end, also of a turn with calls.
    Stop,
    /// The per-request cap was reached: continue with the continuation token.
    Continuation,
    /// Blocked by the provider's filters or policy.
    Blocked(String),
    /// The model wrote a call or an answer that does not parse: worth one retry.
    Garbled(String),
    /// Incomplete, failed, or an unknown value.
    Other(String),
}

impl FinishReason {
    fn from_name(name: &str) -> Self {
        match name {
            "STOP" => Self::Stop,
            "CONTINUATION" => Self::Continuation,
            "SAFETY"
            | "PROHIBITED_CONTENT"
            | "BLOCKLIST"
            | "SPII"
            | "RECITATION"
            | "MODEL_ARMOR"
            | "ESCALATION"
            | "PUP_LIMITED_DISABLED" => Self::Blocked(label(name)),
            // IMAGE_SAFETY, IMAGE_RECITATION and the like; IMAGE_OTHER is a plain failure.
            _ if name.starts_with("IMAGE_") && name != "IMAGE_OTHER" => Self::Blocked(label(name)),
            "MALFORMED_FUNCTION_CALL" | "MALFORMED_RESPONSE" => Self::Garbled(label(name)),
            _ => Self::Other(label(name)),
        }
    }

    /// The numbers on which both APIs agree. Larger numbers differ between the APIs.
    fn from_number(number: i64) -> Self {
        match number {
            1 => Self::Stop,
            2 => Self::from_name("MAX_TOKENS"),
            3 => Self::from_name("SAFETY"),
            4 => Self::from_name("RECITATION"),
            5 => Self::from_name("OTHER"),
            _ => Self::Other(number.to_string()),
        }
    }
}

impl<'de> Deserialize<'de> for FinishReason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_enum(deserializer, Self::from_name, Self::from_number)
    }
}

/// `promptFeedback.blockReason`. `None` inside means that nothing was blocked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BlockReason(pub(super) Option<String>);

impl<'de> Deserialize<'de> for BlockReason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_enum(
            deserializer,
            |name| Self((!name.is_empty() && !name.ends_with("_UNSPECIFIED")).then(|| label(name))),
            |number| Self((number != 0).then(|| number.to_string())),
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn numbers_mean_what_their_names_mean() {
        let read = |json: &str| serde_json::from_str::<FinishReason>(json).unwrap();
        for (number, name) in [
            ("1", "STOP"),
            ("2", "MAX_TOKENS"),
            ("3", "SAFETY"),
            ("4", "RECITATION"),
            ("5", "OTHER"),
        ] {
            assert_eq!(read(number), read(&format!("\"{name}\"")));
        }
        assert_eq!(read("4711"), FinishReason::Other("4711".into()));
        assert_eq!(read("-1"), FinishReason::Other("-1".into()));
    }

    #[test]
    fn a_value_from_the_future_is_no_success_and_is_fit_for_a_log() {
        let read = |json: &str| serde_json::from_str::<FinishReason>(json).unwrap();
        assert_eq!(read(r#""NEW\n REASON""#), FinishReason::Other("NEWREASON".into()));
        assert_eq!(
            read(r#""IMAGE_NEW_FILTER""#),
            FinishReason::Blocked("IMAGE_NEW_FILTER".into())
        );
    }
}
