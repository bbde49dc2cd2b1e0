//! Model and sampling settings.

/// Model and sampling settings of a definition (`modelConfig`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelSettings {
    /// Model name; if absent, the configured one.
    pub model: Option<String>,
    /// `temp`, 0..=2.
    pub temperature: Option<f32>,
    /// `top_p`, 0..=1.
    pub top_p: Option<f32>,
    /// `thinkingBudget`, −1 = unlimited.
    pub thinking_budget: Option<i32>,
    /// `thinkingLevel`, never beside a budget.
    pub thinking_level: Option<ThinkingLevel>,
    /// `includeThoughts`: whether the model summarizes its thinking. If absent: yes in an agent's run, no in a chat.
    pub include_thoughts: Option<bool>,
    /// The most tokens of one answer.
    pub max_output_tokens: Option<u32>,
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
