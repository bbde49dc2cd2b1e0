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
    /// `includeThoughts`: whether the model summarizes its thinking. If absent: yes in an agent's run, no in a chat.
    pub include_thoughts: Option<bool>,
    /// The most tokens of one answer.
    pub max_output_tokens: Option<u32>,
}
