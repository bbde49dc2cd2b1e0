//! Which settings a model of a given generation supports (WIRE.md sections 2 and 8).

/// A generation, parsed from the model's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// `gemini-MAJOR.MINOR-…`
    Gemini(u32, u32),
    /// A moving alias, a tuned model, or anything else.
    Unknown,
}

/// How a model's thinking is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thinking {
    /// By `thinkingBudget` within these bounds; −1 lets the model decide.
    Budget {
        /// The minimum, unless 0 is allowed.
        min: i32,
        /// 0 turns thinking off.
        zero: bool,
        /// The maximum.
        max: i32,
        /// It thinks if no budget is set.
        by_itself: bool,
    },
    /// By `thinkingLevel`. Not every model supports `minimal` and `medium`.
    Level {
        /// Supports MINIMAL.
        minimal: bool,
        /// Supports MEDIUM.
        medium: bool,
    },
    /// It does not think, or how to configure it is unknown.
    Unknown,
}

impl Family {
    pub(super) fn of(model: &str) -> Self {
        let version = || {
            let version = model.strip_prefix("gemini-")?.split('-').next()?;
            let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
            Some(Self::Gemini(major.parse().ok()?, minor.parse().ok()?))
        };
        version().unwrap_or(Self::Unknown)
    }

    /// From Gemini 4 on, `temperature` and `topP` are ignored.
    pub(super) fn samples(self) -> bool {
        !matches!(self, Self::Gemini(4.., _))
    }

    /// Gemini 4 rejects a unary request for more output tokens than this, but not a stream.
    pub(super) fn unary_cap(self) -> Option<u32> {
        matches!(self, Self::Gemini(4.., _)).then_some(32_768)
    }

    pub(super) fn thinking(self, model: &str) -> Thinking {
        match self {
            Self::Gemini(2, 5) if model.contains("flash-lite") => Thinking::Budget {
                min: 512,
                zero: true,
                max: 24_576,
                by_itself: false,
            },
            Self::Gemini(2, 5) if model.contains("flash") => Thinking::Budget {
                min: 1,
                zero: true,
                max: 24_576,
                by_itself: true,
            },
            Self::Gemini(2, 5) => Thinking::Budget {
                min: 128,
                zero: false,
                max: 32_768,
                by_itself: true,
            },
            Self::Gemini(3, 0) => Thinking::Level {
                minimal: model.contains("flash"),
                medium: model.contains("flash"),
            },
            Self::Gemini(3.., _) => Thinking::Level {
                minimal: false,
                medium: true,
            },
            Self::Gemini(..) | Self::Unknown => Thinking::Unknown,
        }
    }

    /// Does `model` think if a request does not specify how much? Google rejects a request for thoughts if the model
    /// does not think.
    pub(super) fn thinks_by_itself(self, model: &str) -> bool {
        match self.thinking(model) {
            Thinking::Budget { by_itself, .. } => by_itself,
            Thinking::Level { .. } => true,
            Thinking::Unknown => ["gemini-flash-latest", "gemini-pro-latest"].contains(&model),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generation_is_read_from_the_name() {
        for (name, family) in [
            ("gemini-2.5-flash", Family::Gemini(2, 5)),
            ("gemini-3-flash-preview", Family::Gemini(3, 0)),
            ("gemini-3.8-flash", Family::Gemini(3, 8)),
            ("gemini-4-argon", Family::Gemini(4, 0)),
            ("gemini-10.1-x", Family::Gemini(10, 1)),
            ("gemini-flash-latest", Family::Unknown),
            ("gemma-3-27b-it", Family::Unknown),
            ("", Family::Unknown),
        ] {
            assert_eq!(Family::of(name), family, "{name}");
        }
    }
}
