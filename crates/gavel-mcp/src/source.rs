//! A configured server as a source of text: which of its text may be kept, shown and logged.

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
    /// Shared by the answers of all servers.
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

    /// Text of the server, or of a client about it, in the form that is shown, logged and recorded: without configured
    /// secrets and invisible characters, in at most `max` bytes. It is truncated last, so that no part of a secret
    /// remains.
    pub(super) fn words(&self, text: &str, max: usize) -> String {
        let seen = visible(&self.secrets.hide(text));
        // Removed invisible characters may have been inside a secret.
        capped(&self.secrets.hide(&seen), max).into_owned()
    }

    /// Text for a model: as the server wrote it, but without configured secrets.
    pub(crate) fn said<'a>(&self, text: &'a str, max: usize) -> Cow<'a, str> {
        match self.secrets.hide(text) {
            Cow::Borrowed(text) => capped(text, max),
            Cow::Owned(text) => Cow::Owned(capped(&text, max).into_owned()),
        }
    }

    /// For messages that no user requested.
    pub(super) fn held(&self) -> Held<'static> {
        Held::of_server(&self.answers, &self.name)
    }
}
