//! `generationConfig`: translates a definition's settings for the model that answers.
//!
//! A setting that a model does not support is mapped to the nearest supported one, or left out. Either way, one warning
//! per model and setting is logged.

use std::collections::HashSet;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use super::address::is_other;
use crate::domain::definition::{ModelSettings, ThinkingLevel};
use crate::domain::family::{Family, Thinking, bare_model};

/// Which warnings have been logged.
#[derive(Debug, Default)]
pub(super) struct Warned(Mutex<HashSet<(String, &'static str)>>);

impl Warned {
    /// Logs a warning once per model and setting. Model names come from definitions: after 4096 entries, warnings stop
    /// so that memory stays bounded.
    fn warn(&self, model: &str, setting: &'static str, what: &str) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() < 4096 && said.insert((model.to_owned(), setting)) {
            drop(said);
            tracing::warn!(model, setting, "the model does not support this setting: {what}");
        }
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.0.lock().map_or(0, |said| said.len())
    }
}

/// How much a request asks the model to think.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Asked {
    Nothing,
    Level(ThinkingLevel),
    Budget(i32),
    /// As little as the model can. It is no setting, so its mapping causes no warning.
    Least,
}

impl Asked {
    /// What the definition sets, else the configured level.
    pub(super) fn of(settings: &ModelSettings, configured: Option<ThinkingLevel>) -> Self {
        match (settings.thinking_budget, settings.thinking_level.or(configured)) {
            (Some(budget), _) => Self::Budget(budget),
            (None, Some(level)) => Self::Level(level),
            (None, None) => Self::Nothing,
        }
    }

    /// The level, or the one that corresponds to the budget. A negative budget lets the model decide, which is also
    /// what HIGH means.
    fn level(self) -> Option<ThinkingLevel> {
        Some(match self {
            Self::Nothing => return None,
            Self::Level(level) => level,
            Self::Budget(..=-1 | 16_385..) => ThinkingLevel::High,
            Self::Budget(0) | Self::Least => ThinkingLevel::Minimal,
            Self::Budget(1..=4096) => ThinkingLevel::Low,
            Self::Budget(4097..=16_384) => ThinkingLevel::Medium,
        })
    }
}

/// `generationConfig`, and what follows from it for the wait.
#[derive(Debug, PartialEq)]
pub(super) struct Generation {
    /// Its fields, without braces. Empty if nothing is set.
    pub(super) fields: String,
    /// The answer may begin late, because the model thinks long first.
    pub(super) thinks_long: bool,
}

/// The settings for `model`, which is the one that will answer, as far as that is known. With `thoughts`, the model is
/// asked to summarize its thinking, if it thinks.
pub(super) fn generation(
    model: &str,
    settings: &ModelSettings,
    asked: Asked,
    thoughts: bool,
    warned: &Warned,
) -> Generation {
    let family = Family::of(model);
    let mut fields = String::new();
    let samples = family.samples();
    for (name, value) in [("temperature", settings.temperature), ("topP", settings.top_p)] {
        match value {
            Some(_) if !samples => warned.warn(model, name, "left out"),
            Some(value) if !value.is_finite() => warned.warn(model, name, "not a number, left out"),
            Some(value) => field(&mut fields, name, value),
            None => {}
        }
    }
    if let Some(most) = settings.max_output_tokens {
        field(&mut fields, "maxOutputTokens", most);
    }
    let set = thinking(model, family.thinking(), asked, warned);
    let (mut config, thinks) = set.unwrap_or_else(|| (String::new(), family.thinks_by_itself()));
    if thoughts && thinks {
        field(&mut config, "includeThoughts", true);
    } else if settings.include_thoughts == Some(true) {
        warned.warn(
            model,
            "includeThoughts",
            "the model does not think with these settings, left out",
        );
    }
    if !config.is_empty() {
        field(&mut fields, "thinkingConfig", format_args!("{{{config}}}"));
    }
    Generation {
        fields,
        thinks_long: family.thinks_long(asked.level()),
    }
}

/// The budgets that correspond to the levels, from the least on.
const BUDGETS: [i32; 5] = [0, 1024, 8192, 24_576, 32_768];

/// How much the model should think, as a field of `thinkingConfig`, and whether it then thinks at all. `None` if
/// nothing is asked, or the model has no such setting.
fn thinking(model: &str, known: Thinking, asked: Asked, warned: &Warned) -> Option<(String, bool)> {
    let level = asked.level()?;
    let (field, thinks, is_as_asked) = match known {
        Thinking::Budget { min, zero, max, .. } => {
            let (budget, is_given) = match asked {
                Asked::Budget(budget) => (budget, true),
                _ => (BUDGETS[level as usize], false),
            };
            let fits = match budget {
                ..=-1 => -1,
                0 if zero => 0,
                budget => budget.clamp(min, max),
            };
            let field = format!(r#""thinkingBudget":{fits}"#);
            (field, fits != 0, is_given && fits == budget)
        }
        Thinking::Level { levels, .. } => {
            let distance = |known: &&ThinkingLevel| (**known as i32).abs_diff(level as i32);
            // Of two levels that are equally near, the higher one.
            let nearest = *levels.iter().rev().min_by_key(distance)?;
            let field = format!(r#""thinkingLevel":"{}""#, nearest.as_str().to_ascii_uppercase());
            let is_as_asked = nearest == level && !matches!(asked, Asked::Budget(0..));
            (field, nearest != ThinkingLevel::Minimal, is_as_asked)
        }
        Thinking::Unknown => (String::new(), false, false),
    };
    let setting = match asked {
        Asked::Budget(_) => "thinkingBudget",
        _ => "thinkingLevel",
    };
    if !is_as_asked && asked != Asked::Least {
        warned.warn(model, setting, "the nearest value is sent, or none");
    }
    (!field.is_empty()).then_some((field, thinks))
}

fn field(fields: &mut String, name: &str, value: impl std::fmt::Display) {
    let comma = if fields.is_empty() { "" } else { "," };
    // Writing to a String cannot fail.
    let _ = write!(fields, r#"{comma}"{name}":{value}"#);
}

/// A name with its versions, or a beginning of names; since when; and the model that answers, or `""` if requests fail.
/// State of 2026-11-28.
const FATES: [(&str, &str, &str); 7] = [
    ("gemini-3.7-flash", "2026-10-08", "gemini-3.8-flash"),
    ("gemini-3.5-flash", "2026-10-08", "gemini-3.6-flash"),
    ("gemini-2.5-pro", "2026-12-01", "gemini-3.8-flash"),
    ("gemini-2.5-flash", "2026-12-01", "gemini-3.5-flash-lite"),
    ("gemini-3.1-flash-lite", "2027-05-07", ""),
    ("gemini-3-pro-preview", "2026-03-09", ""),
    ("gemini-2.0-", "2026-06-01", ""),
];

/// What an operator should know of a model's name on a day, such as `2026-11-28`.
pub fn advice(model: &str, today: &str) -> Option<String> {
    let model = bare_model(model.trim());
    let is_about = |name: &str| !is_other(name, model) || (name.ends_with('-') && model.starts_with(name));
    let (_, date, by) = FATES.iter().find(|(name, ..)| is_about(name))?;
    Some(match (*by, *date <= today) {
        ("", true) => format!("Google shut down {model} on {date}; name a newer model"),
        ("", false) => format!("Google shuts down {model} on {date} at the earliest; name a newer model by then"),
        (by, true) => format!("since {date} Google answers {model} with {by}; name {by}"),
        (by, false) => format!("from {date} on, Google answers {model} with {by}; name {by}"),
    })
}

#[cfg(test)]
mod deprecations_tests {
    use super::*;

    #[test]
    fn an_old_name_has_a_date_and_a_successor() {
        for (model, today, expected) in [
            (
                "gemini-3.7-flash",
                "2026-11-28",
                "since 2026-10-08 Google answers gemini-3.7-flash with gemini-3.8-flash; name gemini-3.8-flash",
            ),
            (
                "models/gemini-3.5-flash",
                "2026-11-28",
                "since 2026-10-08 Google answers gemini-3.5-flash with gemini-3.6-flash; name gemini-3.6-flash",
            ),
            (
                "gemini-3.5-flash-001",
                "2026-11-28",
                "since 2026-10-08 Google answers gemini-3.5-flash-001 with gemini-3.6-flash; name gemini-3.6-flash",
            ),
            (
                "gemini-2.5-pro",
                "2026-11-28",
                "from 2026-12-01 on, Google answers gemini-2.5-pro with gemini-3.8-flash; name gemini-3.8-flash",
            ),
            (
                "gemini-2.5-flash",
                "2026-12-01",
                "since 2026-12-01 Google answers gemini-2.5-flash with gemini-3.5-flash-lite; name gemini-3.5-flash-lite",
            ),
            (
                "gemini-2.0-flash-exp",
                "2026-11-28",
                "Google shut down gemini-2.0-flash-exp on 2026-06-01; name a newer model",
            ),
            (
                "gemini-3-pro-preview",
                "2026-11-28",
                "Google shut down gemini-3-pro-preview on 2026-03-09; name a newer model",
            ),
            (
                "gemini-3.1-flash-lite",
                "2026-11-28",
                "Google shuts down gemini-3.1-flash-lite on 2027-05-07 at the earliest; name a newer model by then",
            ),
        ] {
            assert_eq!(advice(model, today).as_deref(), Some(expected));
        }
        for model in [
            "gemini-3.8-flash",
            "gemini-3.5-flash-lite",
            "gemini-2.5-flash-lite",
            "gemini-4-neon",
            "demo",
            "",
        ] {
            assert_eq!(advice(model, "2026-11-28"), None, "{model}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(model: &str, settings: &ModelSettings, thoughts: bool, warned: &Warned) -> String {
        generation(model, settings, Asked::of(settings, None), thoughts, warned).fields
    }

    fn full(thinking_budget: i32) -> ModelSettings {
        ModelSettings {
            model: None,
            temperature: Some(0.1),
            top_p: Some(0.95),
            thinking_budget: Some(thinking_budget),
            thinking_level: None,
            include_thoughts: None,
            max_output_tokens: Some(1000),
        }
    }

    #[test]
    fn each_generation_gets_its_own_settings() {
        for (model, budget, expected, warnings) in [
            (
                "gemini-2.5-flash",
                -1,
                r#""temperature":0.1,"topP":0.95,"maxOutputTokens":1000,"thinkingConfig":{"thinkingBudget":-1}"#,
                0,
            ),
            (
                "gemini-2.5-flash",
                99_999,
                r#""temperature":0.1,"topP":0.95,"maxOutputTokens":1000,"thinkingConfig":{"thinkingBudget":24576}"#,
                1,
            ),
            (
                "gemini-2.5-pro",
                0,
                r#""temperature":0.1,"topP":0.95,"maxOutputTokens":1000,"thinkingConfig":{"thinkingBudget":128}"#,
                1,
            ),
            (
                "gemini-2.5-flash-lite",
                0,
                r#""temperature":0.1,"topP":0.95,"maxOutputTokens":1000,"thinkingConfig":{"thinkingBudget":0}"#,
                0,
            ),
            (
                "gemini-3-flash-preview",
                0,
                r#""temperature":0.1,"topP":0.95,"maxOutputTokens":1000,"thinkingConfig":{"thinkingLevel":"MINIMAL"}"#,
                1,
            ),
            (
                "gemini-3.8-flash",
                8192,
                r#""temperature":0.1,"topP":0.95,"maxOutputTokens":1000,"thinkingConfig":{"thinkingLevel":"MEDIUM"}"#,
                1,
            ),
            (
                "gemini-4-argon",
                -1,
                r#""maxOutputTokens":1000,"thinkingConfig":{"thinkingLevel":"HIGH"}"#,
                2,
            ),
            (
                "gemini-flash-latest",
                512,
                r#""temperature":0.1,"topP":0.95,"maxOutputTokens":1000"#,
                1,
            ),
        ] {
            let warned = Warned::default();
            assert_eq!(fields(model, &full(budget), false, &warned), expected, "{model}");
            fields(model, &full(budget), false, &warned);
            assert_eq!(warned.count(), warnings, "{model}: once per setting");
        }
    }

    #[test]
    fn a_level_that_a_model_does_not_know_becomes_the_nearest_one_and_is_never_sent() {
        use ThinkingLevel::{High, Low, Medium, Minimal, Xhigh};
        for (model, level, expected, warnings) in [
            ("gemini-4-neon", Xhigh, r#""thinkingLevel":"XHIGH""#, 0),
            ("gemini-4-hydrogen", Xhigh, r#""thinkingLevel":"XHIGH""#, 0),
            ("gemini-4-hydrogen-001", Minimal, r#""thinkingLevel":"LOW""#, 1),
            ("gemini-4-argon", Xhigh, r#""thinkingLevel":"HIGH""#, 1),
            ("gemini-4-carbon", Minimal, r#""thinkingLevel":"LOW""#, 1),
            ("gemini-3.8-flash", Minimal, r#""thinkingLevel":"LOW""#, 1),
            ("gemini-3.8-flash", Medium, r#""thinkingLevel":"MEDIUM""#, 0),
            ("gemini-3-flash-preview", Minimal, r#""thinkingLevel":"MINIMAL""#, 0),
            ("gemini-3-pro-preview", Medium, r#""thinkingLevel":"HIGH""#, 1),
            ("gemini-2.5-flash", Minimal, r#""thinkingBudget":0"#, 1),
            ("gemini-2.5-pro", Minimal, r#""thinkingBudget":128"#, 1),
            ("gemini-2.5-flash", Low, r#""thinkingBudget":1024"#, 1),
            ("gemini-2.5-flash", Xhigh, r#""thinkingBudget":24576"#, 1),
            ("gemini-2.5-pro", High, r#""thinkingBudget":24576"#, 1),
            ("gemini-2.0-flash", High, "", 1),
            ("gemini-flash-latest", High, "", 1),
            ("tuned", Low, "", 1),
        ] {
            let warned = Warned::default();
            let settings = ModelSettings {
                thinking_level: Some(level),
                ..ModelSettings::default()
            };
            let expected = match expected {
                "" => String::new(),
                expected => format!(r#""thinkingConfig":{{{expected}}}"#),
            };
            assert_eq!(fields(model, &settings, false, &warned), expected, "{model} {level:?}");
            assert_eq!(warned.count(), warnings, "{model} {level:?}");
        }
    }

    #[test]
    fn the_configured_level_is_for_definitions_that_set_neither_level_nor_budget() {
        let configured = Some(ThinkingLevel::Low);
        for (thinking_budget, thinking_level, expected) in [
            (None, None, Asked::Level(ThinkingLevel::Low)),
            (Some(0), None, Asked::Budget(0)),
            (None, Some(ThinkingLevel::High), Asked::Level(ThinkingLevel::High)),
        ] {
            let settings = ModelSettings {
                thinking_budget,
                thinking_level,
                ..ModelSettings::default()
            };
            assert_eq!(Asked::of(&settings, configured), expected);
        }
        assert_eq!(Asked::of(&ModelSettings::default(), None), Asked::Nothing);
    }

    #[test]
    fn nothing_set_sends_nothing_and_a_number_that_is_none_is_not_sent() {
        assert_eq!(fields("m", &ModelSettings::default(), false, &Warned::default()), "");
        let odd = ModelSettings {
            temperature: Some(f32::NAN),
            ..ModelSettings::default()
        };
        assert_eq!(fields("m", &odd, false, &Warned::default()), "");
    }

    /// D-R6: Google rejects a request for thoughts where thinking is off, and always for a model that does not think.
    #[test]
    fn thoughts_are_asked_only_of_a_model_that_thinks() {
        let asked = |words: &str| match words {
            "" => r#""thinkingConfig":{"includeThoughts":true}"#.to_owned(),
            words => format!(r#""thinkingConfig":{{{words},"includeThoughts":true}}"#),
        };
        let not_asked = |words: &str| match words {
            "" => String::new(),
            words => format!(r#""thinkingConfig":{{{words}}}"#),
        };
        for (model, budget, with_thoughts) in [
            ("gemini-2.5-pro", None, asked("")),
            ("gemini-2.5-pro", Some(0), asked(r#""thinkingBudget":128"#)),
            ("gemini-2.5-flash", None, asked("")),
            ("gemini-2.5-flash", Some(-1), asked(r#""thinkingBudget":-1"#)),
            ("gemini-2.5-flash", Some(0), not_asked(r#""thinkingBudget":0"#)),
            ("gemini-2.5-flash-lite", None, not_asked("")),
            ("gemini-2.5-flash-lite", Some(512), asked(r#""thinkingBudget":512"#)),
            ("gemini-2.5-flash-lite", Some(-1), asked(r#""thinkingBudget":-1"#)),
            ("gemini-2.5-flash-lite", Some(0), not_asked(r#""thinkingBudget":0"#)),
            ("gemini-3-flash-preview", None, asked("")),
            (
                "gemini-3-flash-preview",
                Some(0),
                not_asked(r#""thinkingLevel":"MINIMAL""#),
            ),
            ("gemini-3.1-flash-lite", None, asked("")),
            ("gemini-3.8-flash", Some(0), asked(r#""thinkingLevel":"LOW""#)),
            ("gemini-4-argon", Some(-1), asked(r#""thinkingLevel":"HIGH""#)),
            ("gemini-flash-latest", None, asked("")),
            ("gemini-flash-latest", Some(512), asked("")),
            ("gemini-pro-latest", None, asked("")),
            ("gemini-flash-lite-latest", None, not_asked("")),
            ("gemini-2.0-flash", None, not_asked("")),
            ("gemini-2.0-flash", Some(-1), not_asked("")),
            ("gemma-3-27b-it", None, not_asked("")),
            ("tuned", None, not_asked("")),
        ] {
            for include_thoughts in [None, Some(true), Some(false)] {
                let warned = Warned::default();
                let settings = ModelSettings {
                    thinking_budget: budget,
                    include_thoughts,
                    ..ModelSettings::default()
                };
                let what = format!("{model} {budget:?} {include_thoughts:?}");
                let written = fields(model, &settings, true, &warned);
                assert_eq!(written, with_thoughts, "{what}");
                // A setting without effect causes a warning.
                let in_vain = !written.contains("includeThoughts") && include_thoughts == Some(true);
                let names: Vec<_> = warned.0.lock().unwrap().iter().map(|(_, setting)| *setting).collect();
                assert_eq!(names.contains(&"includeThoughts"), in_vain, "{what}");
                let without = fields(model, &settings, false, &Warned::default());
                assert!(!without.contains("includeThoughts"), "{what}: {without}");
            }
        }
    }
}
