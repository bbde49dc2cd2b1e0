//! The constitution: the definition that the chat surface runs under, with that surface's own rules.

use std::time::Duration;

use super::error::DefinitionError;
use super::fields::Field;
use super::{Definition, Flow, Form, Prompt, form};

/// A definition that is fit for stateless chat.
#[derive(Clone, Debug, PartialEq)]
pub struct Constitution {
    /// Persona, whitelist, model.
    pub definition: Definition,
    /// Its system prompt.
    pub system_prompt: String,
    /// Its limits, defaults filled in.
    pub limits: ChatLimits,
}

/// How long one chat decision may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChatLimits {
    /// Model calls, retries not counted; 1..=[`ChatLimits::MAX_ITERATIONS`].
    pub iterations: u32,
    /// From the parsed request to the answer; 1 s..=[`ChatLimits::MAX_DEADLINE`].
    pub deadline: Duration,
}

impl ChatLimits {
    /// C-FR-011: a loop ends after at most 5 iterations. Also the default.
    pub const MAX_ITERATIONS: u32 = 5;
    /// The longest a chat client can be kept waiting.
    pub const MAX_DEADLINE: Duration = Duration::from_secs(600);
    /// Without a word in the constitution.
    pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(30);
}

impl Default for ChatLimits {
    fn default() -> Self {
        Self {
            iterations: Self::MAX_ITERATIONS,
            deadline: Self::DEFAULT_DEADLINE,
        }
    }
}

impl Constitution {
    /// The constitution compiled into the binary, so that it serves alone.
    pub const BUILT_IN: &'static str = include_str!("../../../constitution.md");

    /// Reads a constitution; `path` is only named in errors.
    ///
    /// # Errors
    /// Every error at once: those of [`Definition::from_markdown`], or what does not fit a chat.
    pub fn from_markdown(text: &str, path: &str) -> Result<Self, Vec<DefinitionError>> {
        let (definition, places) =
            form::read(text.as_bytes(), Form::Markdown, path).map_err(|refused| refused.errors)?;
        let mut errors = Vec::new();
        let mut error = |field: Field, found: String, allowed: String| {
            let line = places.line(&field.portable());
            errors.push(DefinitionError {
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
            let allowed = "no sub_agents: a chat calls tools alone".to_owned();
            let named: Vec<_> = definition.sub_agents.iter().map(|one| one.agent.as_str()).collect();
            error(Field::SubAgents, named.join(", "), allowed);
        }
        if !only_query || prompt.query != "${query}" {
            let allowed = "no inputConfig and no query: a chat has one input, the message".to_owned();
            error(Field::Query, "inputs of its own".to_owned(), allowed);
        }
        if prompt.system_prompt.contains("${query}") {
            let allowed = "a system prompt without ${query}: it is the same for every message".to_owned();
            error(Field::SystemPrompt, "the message in it".to_owned(), allowed);
        }
        if definition.output.is_some() || definition.process_output.is_some() {
            let allowed = "no outputConfig: a chat answers in words".to_owned();
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
                definition,
                limits: ChatLimits { iterations, deadline },
            })
        } else {
            Err(errors)
        }
    }
}
