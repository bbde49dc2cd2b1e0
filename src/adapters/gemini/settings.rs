//! `generationConfig`: translates a definition's settings for the requested model.
//!
//! A setting that a model does not support is mapped to the nearest supported one, or left out. Either way, one warning
//! per model and setting is logged.

use std::collections::HashSet;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use super::family::{Family, Thinking};
use crate::ports::model::ModelSettings;

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

/// The fields of `generationConfig` for `model`, without braces. Empty if nothing is set. With `thoughts`, the model is
/// asked to summarize its thinking, if it thinks.
pub(super) fn generation_config(model: &str, settings: &ModelSettings, thoughts: bool, warned: &Warned) -> String {
    let mut fields = String::new();
    if !thoughts && *settings == ModelSettings::default() {
        return fields;
    }
    let family = Family::of(model);
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
    let set = settings
        .thinking_budget
        .and_then(|budget| thinking(model, family.thinking(model), budget, warned));
    let (mut config, thinks) = set.unwrap_or_else(|| (String::new(), family.thinks_by_itself(model)));
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
    fields
}

/// How much the model should think, as a field of `thinkingConfig`, and whether it then thinks at all. `None` if the
/// model has no such setting.
fn thinking(model: &str, known: Thinking, budget: i32, warned: &Warned) -> Option<(String, bool)> {
    match known {
        Thinking::Budget { min, zero, max, .. } => {
            let fits = match budget {
                ..=-1 => -1,
                0 if zero => 0,
                budget => budget.clamp(min, max),
            };
            if fits != budget {
                warned.warn(model, "thinkingBudget", "clamped to the model's bounds");
            }
            Some((format!(r#""thinkingBudget":{fits}"#), fits != 0))
        }
        Thinking::Level { minimal, medium } => {
            let level = match budget {
                ..=-1 => "HIGH",
                0 if minimal => "MINIMAL",
                0..=4096 => "LOW",
                4097..=16_384 if medium => "MEDIUM",
                _ => "HIGH",
            };
            // A negative budget lets the model decide, which is also what HIGH means.
            if budget >= 0 {
                warned.warn(model, "thinkingBudget", "mapped to a thinkingLevel");
            }
            Some((format!(r#""thinkingLevel":"{level}""#), level != "MINIMAL"))
        }
        Thinking::Unknown => {
            warned.warn(model, "thinkingBudget", "left out");
            None
        }
    }
}

fn field(fields: &mut String, name: &str, value: impl std::fmt::Display) {
    let comma = if fields.is_empty() { "" } else { "," };
    // Writing to a String cannot fail.
    let _ = write!(fields, r#"{comma}"{name}":{value}"#);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(thinking_budget: i32) -> ModelSettings {
        ModelSettings {
            model: None,
            temperature: Some(0.1),
            top_p: Some(0.95),
            thinking_budget: Some(thinking_budget),
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
            assert_eq!(
                generation_config(model, &full(budget), false, &warned),
                expected,
                "{model}"
            );
            generation_config(model, &full(budget), false, &warned);
            assert_eq!(warned.count(), warnings, "{model}: once per setting");
        }
    }

    #[test]
    fn nothing_set_sends_nothing_and_a_number_that_is_none_is_not_sent() {
        assert_eq!(
            generation_config("m", &ModelSettings::default(), false, &Warned::default()),
            ""
        );
        let odd = ModelSettings {
            temperature: Some(f32::NAN),
            ..ModelSettings::default()
        };
        assert_eq!(generation_config("m", &odd, false, &Warned::default()), "");
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
                let written = generation_config(model, &settings, true, &warned);
                assert_eq!(written, with_thoughts, "{what}");
                // A setting without effect causes a warning.
                let in_vain = !written.contains("includeThoughts") && include_thoughts == Some(true);
                let names: Vec<_> = warned.0.lock().unwrap().iter().map(|(_, setting)| *setting).collect();
                assert_eq!(names.contains(&"includeThoughts"), in_vain, "{what}");
                let without = generation_config(model, &settings, false, &Warned::default());
                assert!(!without.contains("includeThoughts"), "{what}: {without}");
            }
        }
    }
}
