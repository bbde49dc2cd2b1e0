//! Model and sampling settings.

use serde_json::Value;

use super::fields::Field;
use super::values::{Held, Values, fields};

fields! {
    /// Model and sampling settings of a definition (`modelConfig`).
    #[derive(PartialEq)]
    pub struct ModelSettings {
        /// Model name; if absent, the configured one.
        model: String = Model;
        /// `temp`, 0..=2.
        temperature: f32 = Temperature;
        /// `top_p`, 0..=1.
        top_p: f32 = TopP;
        /// `thinkingBudget`, −1 = unlimited.
        thinking_budget: i32 = ThinkingBudget;
        /// `thinkingLevel`, never beside a budget.
        thinking_level: ThinkingLevel = ThinkingLevel;
        /// `includeThoughts`: whether the model summarizes its thinking. If absent: yes in an agent's run, no in a chat.
        include_thoughts: bool = IncludeThoughts;
        /// The most tokens of one answer.
        max_output_tokens: u32 = MaxOutputTokens;
    }
}

/// How much a model thinks, from the least to the most. No model knows all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThinkingLevel {
    /// As little as possible.
    Minimal,
    /// Little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
    /// More than a budget can ask for.
    Xhigh,
}

impl ThinkingLevel {
    /// Every level, with the name that definitions and settings use.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("minimal", Self::Minimal),
        ("low", Self::Low),
        ("medium", Self::Medium),
        ("high", Self::High),
        ("xhigh", Self::Xhigh),
    ];

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::NAMES[self as usize].0
    }
}

impl Held for ThinkingLevel {
    fn read(values: &mut Values<'_>, field: Field) -> Option<Self> {
        values.choice(field, &Self::NAMES)
    }

    fn to_json(&self) -> Value {
        self.as_str().into()
    }
}
