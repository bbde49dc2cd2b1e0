//! What a model of a given generation knows of our settings (WIRE.md sections 2 and 8).

/// A generation, read from the model's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// `gemini-MAJOR.MINOR-…`
    Gemini(u32, u32),
    /// An alias that moves, a tuned model, something else.
    Unknown,
}

/// How a model's thinking is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thinking {
    /// By `thinkingBudget` within these bounds; −1 leaves it to the model.
    Budget {
        /// The least, unless 0 is allowed.
        min: i32,
        /// 0 turns thinking off.
        zero: bool,
        /// The most.
        max: i32,
        /// It thinks where no budget is set.
        by_itself: bool,
    },
    /// By `thinkingLevel`; `minimal` and `medium` are not known to all.
    Level {
        /// Knows MINIMAL.
        minimal: bool,
        /// Knows MEDIUM.
        medium: bool,
    },
    /// It does not think, or nobody knows how it is told to.
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

    /// From Gemini 4 on `temperature` and `topP` are ignored.
    pub(super) fn samples(self) -> bool {
        !matches!(self, Self::Gemini(4.., _))
    }

    /// A unary request of Gemini 4 for more than this is refused; a stream is not.
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

    /// Does `model` think where a request does not say how much? Google rejects a request for the thoughts of one that does not.
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
