//! A configured server as the source of words: what of them may be kept, shown and logged.

use std::borrow::Cow;
use std::sync::Arc;

use super::answers::Held;
use super::config::ServerConfig;
use super::log::LogLines;
use super::secrets::Secrets;
use crate::domain::budget::Budget;
use crate::domain::text::{capped, visible};

/// One for each configured server, shared by all its connections.
pub(super) struct Source {
    pub(super) name: Arc<str>,
    pub(super) secrets: Secrets,
    pub(super) log: LogLines,
    /// Of all servers' answers together.
    pub(super) answers: Arc<Budget>,
}

impl Source {
    pub(super) fn new(config: &ServerConfig, answers: &Arc<Budget>) -> Arc<Self> {
        Arc::new(Self {
            name: config.name.clone(),
            secrets: Secrets::of(config),
            log: LogLines::new(config.name.clone()),
            answers: answers.clone(),
        })
    }

    /// Words of the server, or of a client about it, as they are shown, logged and recorded: without secrets of the
    /// configuration and without what a person would not see, in at most `max` bytes. Cut last, so that no cut leaves a part
    /// of a secret.
    pub(super) fn words(&self, text: &str, max: usize) -> String {
        let seen = visible(&self.secrets.hide(text));
        // What cannot be seen may have stood between the characters of a secret.
        capped(&self.secrets.hide(&seen), max).into_owned()
    }

    /// Words that a model reads, as the server wrote them but for the secrets of the configuration.
    pub(super) fn said<'a>(&self, text: &'a str, max: usize) -> Cow<'a, str> {
        match self.secrets.hide(text) {
            Cow::Borrowed(text) => capped(text, max),
            Cow::Owned(text) => Cow::Owned(capped(&text, max).into_owned()),
        }
    }

    /// For what the server sends that no user asked for.
    pub(super) fn held(&self) -> Held<'static> {
        Held::of_server(&self.answers, &self.name)
    }
}
