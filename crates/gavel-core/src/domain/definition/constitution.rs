//! The constitution: the definition of the chat surface, with that surface's own rules.

use std::sync::Arc;
use std::time::Duration;

use super::fields::Field;
use super::read::Read;
use super::{Definition, Flow, Form, Prompt, form};
use gavel_reading::ReadError;

/// A definition that can serve stateless chat.
#[derive(Clone, Debug, PartialEq)]
pub struct Constitution {
    /// Persona, tool allowlist, model.
    pub definition: Arc<Definition>,
    /// Its system prompt.
    pub system_prompt: String,
    /// Its limits, including defaults.
    pub limits: ChatLimits,
}

/// The limits of one chat decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChatLimits {
    /// Model calls, without retries; 1..=[`ChatLimits::MAX_ITERATIONS`].
    pub iterations: u32,
    /// Time from the parsed request to the answer; 1 s..=[`ChatLimits::MAX_DEADLINE`].
    pub deadline: Duration,
}

impl ChatLimits {
    /// C-FR-011: a loop ends after at most 5 iterations. Also the default.
    pub const MAX_ITERATIONS: u32 = 5;
    /// The longest time that a chat client can be kept waiting.
    pub const MAX_DEADLINE: Duration = Duration::from_secs(600);
    /// The default, if the constitution sets none.
    pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(30);
}

impl Constitution {
    /// The constitution compiled into the binary, so that the binary runs without other files.
    pub const BUILT_IN: &'static str = include_str!("../../../../../constitution.md");

    /// Parses a constitution; `path` is used only in errors.
    ///
    /// # Errors
    /// All errors: those of [`Definition::read`], and fields that do not apply to a chat.
    pub fn from_markdown(text: &str, path: &str) -> Result<Self, Vec<ReadError>> {
        let Read { definition, places, .. } = form::read(text.as_bytes(), Form::Markdown, path);
        let definition = definition?;
        let mut errors = Vec::new();
        let mut error = |field: Field, found: String, allowed: String| {
            let line = places.line(&field.portable());
            errors.push(ReadError {
                file: path.to_owned(),
                line,
                field: field.portable(),
                found,
                allowed,
            });
        };
        let only_query = definition.inputs.len() == 1 && definition.inputs.contains_key("query");
        let prompt = definition.prompt.clone().unwrap_or_else(|| Prompt {
            query: String::new(),
            system_prompt: String::new(),
        });
        if definition.flow != Flow::Single {
            let allowed = "no flow: a chat decides once".to_owned();
            error(Field::FlowType, definition.flow.as_str().to_owned(), allowed);
        }
        if !definition.sub_agents.is_empty() {
            let allowed = "no sub_agents: a chat calls only tools".to_owned();
            let named: Vec<_> = definition.sub_agents.iter().map(|one| one.agent.as_str()).collect();
            error(Field::SubAgents, named.join(", "), allowed);
        }
        if !only_query || prompt.query != "${query}" {
            let allowed = "no inputConfig and no query: a chat has one input, the message".to_owned();
            error(Field::Query, "its own inputs".to_owned(), allowed);
        }
        if prompt.system_prompt.contains("${query}") {
            let allowed = "a system prompt without ${query}: it is the same for every message".to_owned();
            error(Field::SystemPrompt, "`${query}` in it".to_owned(), allowed);
        }
        if definition.output.is_some() || definition.process_output.is_some() {
            let allowed = "no outputConfig: a chat answers with text".to_owned();
            error(Field::OutputName, "a structured output".to_owned(), allowed);
        }
        let iterations = definition.limits.max_turns.unwrap_or(ChatLimits::MAX_ITERATIONS);
        if iterations > ChatLimits::MAX_ITERATIONS {
            let allowed = format!("1 to {} on the chat surface", ChatLimits::MAX_ITERATIONS);
            error(Field::MaxTurns, iterations.to_string(), allowed);
        }
        if let Some(most) = definition.limits.max_tokens {
            let allowed = "nothing here: a chat is bounded by its turns and its time".to_owned();
            error(Field::MaxTokens, most.to_string(), allowed);
        }
        let deadline = definition.limits.max_time.unwrap_or(ChatLimits::DEFAULT_DEADLINE);
        if deadline > ChatLimits::MAX_DEADLINE {
            let allowed = format!("at most {} s on the chat surface", ChatLimits::MAX_DEADLINE.as_secs());
            let field = if places.has(&Field::DeadlineSeconds.portable()) {
                Field::DeadlineSeconds
            } else {
                Field::MaxTimeMinutes
            };
            error(field, format!("{} s", deadline.as_secs()), allowed);
        }
        if errors.is_empty() {
            Ok(Self {
                system_prompt: prompt.system_prompt,
                definition: Arc::new(definition),
                limits: ChatLimits { iterations, deadline },
            })
        } else {
            Err(errors)
        }
    }
}
