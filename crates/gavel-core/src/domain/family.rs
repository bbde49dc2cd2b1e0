//! Which settings a model supports: by its generation, or by its name where models of one generation differ.

use super::definition::ThinkingLevel::{self, High, Low, Medium, Minimal, Xhigh};

/// What is known of a model, read from its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family<'a> {
    name: &'a str,
    /// MAJOR and MINOR of `gemini-MAJOR.MINOR-…`; `None` for a moving alias, a tuned model, or anything else.
    generation: Option<(u32, u32)>,
}

/// How a model's thinking is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thinking {
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
    /// By `thinkingLevel`.
    Level {
        /// The levels that it knows, the least first.
        levels: &'static [ThinkingLevel],
        /// The level if none is set.
        default: ThinkingLevel,
    },
    /// It does not think, or how to configure it is unknown.
    Unknown,
}

/// Removes the prefixes `models/` and `publishers/google/models/`.
pub fn bare_model(model: &str) -> &str {
    model.rsplit_once("models/").map_or(model, |(_, name)| name)
}

impl<'a> Family<'a> {
    /// The family of a model, by its name.
    pub fn of(model: &'a str) -> Self {
        let name = bare_model(model);
        let generation = || {
            let version = name.strip_prefix("gemini-")?.split('-').next()?;
            let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
            Some((major.parse().ok()?, minor.parse().ok()?))
        };
        Self {
            name,
            generation: generation(),
        }
    }

    fn is_gemini_4(self) -> bool {
        matches!(self.generation, Some((4.., _)))
    }

    /// From Gemini 4 on, `temperature` and `topP` are ignored.
    pub fn samples(self) -> bool {
        !self.is_gemini_4()
    }

    /// It rejects a unary request for more output tokens than this, but not a stream. For a Gemini 4 whose cap is not
    /// known, the lowest known one is assumed.
    pub fn unary_cap(self) -> Option<u32> {
        self.is_gemini_4().then_some(match self.name {
            name if name.starts_with("gemini-4-hydrogen") || name.starts_with("gemini-4-neon") => 65_536,
            _ => 32_768,
        })
    }

    /// How much of its thinking a request may set.
    #[must_use]
    pub fn thinking(self) -> Thinking {
        let Some(generation) = self.generation else {
            return Thinking::Unknown;
        };
        let has = |word| self.name.contains(word);
        let budget = |min, zero, max, by_itself| Thinking::Budget {
            min,
            zero,
            max,
            by_itself,
        };
        let level = |levels, default| Thinking::Level { levels, default };
        match generation {
            (2, 5) if has("flash-lite") => budget(512, true, 24_576, false),
            (2, 5) if has("flash") => budget(1, true, 24_576, true),
            (2, 5) => budget(128, false, 32_768, true),
            (3, 0) if has("flash") => level(&[Minimal, Low, Medium, High], High),
            (3, 0) => level(&[Low, High], High),
            (3, 1) if has("pro") => level(&[Low, Medium, High], High),
            (4, _) if has("hydrogen") || has("neon") => level(&[Low, Medium, High, Xhigh], High),
            (3.., _) => level(&[Low, Medium, High], Medium),
            _ => Thinking::Unknown,
        }
    }

    /// The names of its levels, if `asked` is none of them. Then the nearest one is sent.
    pub fn lacks(self, asked: ThinkingLevel) -> Option<String> {
        match self.thinking() {
            Thinking::Level { levels, .. } if !levels.contains(&asked) => {
                let names: Vec<_> = levels.iter().map(|level| level.as_str()).collect();
                Some(names.join(", "))
            }
            Thinking::Level { .. } | Thinking::Budget { .. } | Thinking::Unknown => None,
        }
    }

    /// Does it think if a request does not specify how much? Google rejects a request for thoughts if the model does
    /// not think.
    pub fn thinks_by_itself(self) -> bool {
        match self.thinking() {
            Thinking::Budget { by_itself, .. } => by_itself,
            Thinking::Level { .. } => true,
            Thinking::Unknown => ["gemini-flash-latest", "gemini-pro-latest"].contains(&self.name),
        }
    }

    /// Can its answer begin minutes after the request, with `asked` or its default? Then only the deadline limits the
    /// wait.
    pub fn thinks_long(self, asked: Option<ThinkingLevel>) -> bool {
        let default = match self.thinking() {
            Thinking::Level { default, .. } => Some(default),
            Thinking::Budget { .. } | Thinking::Unknown => None,
        };
        self.is_gemini_4() || asked.or(default) >= Some(High)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generation_is_read_from_the_name() {
        for (name, generation) in [
            ("gemini-2.5-flash", Some((2, 5))),
            ("gemini-3-flash-preview", Some((3, 0))),
            ("gemini-3.8-flash", Some((3, 8))),
            ("gemini-4-argon", Some((4, 0))),
            ("gemini-10.1-x", Some((10, 1))),
            ("publishers/google/models/gemini-4-argon", Some((4, 0))),
            ("gemini-flash-latest", None),
            ("gemma-3-27b-it", None),
            ("", None),
        ] {
            assert_eq!(Family::of(name).generation, generation, "{name}");
        }
    }

    #[test]
    fn each_model_has_its_own_cap_and_levels() {
        let low_to_high: &[_] = &[Low, Medium, High];
        for (name, cap, levels) in [
            ("gemini-4-argon", Some(32_768), low_to_high),
            ("gemini-4-argon-001", Some(32_768), low_to_high),
            ("gemini-4-carbon", Some(32_768), low_to_high),
            ("gemini-4-hydrogen", Some(65_536), &[Low, Medium, High, Xhigh]),
            ("gemini-4-neon", Some(65_536), &[Low, Medium, High, Xhigh]),
            ("gemini-3.8-flash", None, low_to_high),
            ("gemini-3.1-pro-preview", None, low_to_high),
            ("gemini-3-flash-preview", None, &[Minimal, Low, Medium, High]),
            ("gemini-3-pro-preview", None, &[Low, High]),
        ] {
            let family = Family::of(name);
            assert_eq!(family.unary_cap(), cap, "{name}");
            assert!(
                matches!(family.thinking(), Thinking::Level { levels: known, .. } if known == levels),
                "{name}: {:?}",
                family.thinking()
            );
        }
    }

    #[test]
    fn a_level_that_a_model_lacks_is_answered_with_those_that_it_has() {
        for (name, level, has) in [
            ("models/gemini-3.8-flash", Xhigh, Some("low, medium, high")),
            ("gemini-3.8-flash", Minimal, Some("low, medium, high")),
            ("gemini-3-pro-preview", Medium, Some("low, high")),
            ("gemini-4-neon", Xhigh, None),
            ("gemini-3-flash-preview", Minimal, None),
            // A level becomes a budget.
            ("gemini-2.5-flash", Xhigh, None),
            ("gemini-flash-latest", Xhigh, None),
        ] {
            assert_eq!(Family::of(name).lacks(level).as_deref(), has, "{name} {level:?}");
        }
    }

    #[test]
    fn a_model_thinks_long_by_its_level_its_default_or_its_generation() {
        for (name, asked, long) in [
            ("gemini-4-neon", None, true),
            ("gemini-4-argon", Some(Low), true),
            ("gemini-3.8-flash", None, false),
            ("gemini-3.8-flash", Some(High), true),
            ("gemini-3.1-pro-preview", None, true),
            ("gemini-3.1-pro-preview", Some(Low), false),
            ("gemini-2.5-flash", None, false),
            ("gemini-2.5-pro", Some(High), true),
            ("gemini-flash-latest", None, false),
        ] {
            assert_eq!(Family::of(name).thinks_long(asked), long, "{name} {asked:?}");
        }
    }
}
