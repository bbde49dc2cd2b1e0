//! A server's tools on their way to the catalog: parsed, and held back if they are pinned.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::Gauge;
use serde_json::Value;

use super::config::ServerConfig;
use super::connection::Common;
use super::definition::{self, Offer};
use super::link::Listener;
use super::log;
use super::pins::{AcceptedTool, PinError};
use super::source::Source;
use crate::domain::tool::Tool;
use crate::ports::tools::LeftOut;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A server's listed tools, and which of them are offered.
pub(super) struct ToolListing {
    config: Arc<ServerConfig>,
    source: Arc<Source>,
    common: Arc<Common>,
    listed: Mutex<Listed>,
}

/// A server's tools.
#[derive(Default)]
struct Listed {
    /// All tools that could be read, including those held back.
    offer: Offer,
    /// Is the server connected? Only then may its tools be added to the catalog.
    connected: bool,
    /// The tools that are held back.
    held: Vec<LeftOut>,
}

impl ToolListing {
    pub(super) fn new(config: &Arc<ServerConfig>, source: &Arc<Source>, common: &Arc<Common>) -> Self {
        Self {
            config: config.clone(),
            source: source.clone(),
            common: common.clone(),
            listed: Mutex::default(),
        }
    }

    /// The tools that are held back, with the server's current definitions.
    pub(super) fn held_back(&self) -> Vec<Arc<Tool>> {
        let listed = lock(&self.listed);
        let is_held = |tool: &&Arc<Tool>| listed.held.iter().any(|held| *held.tool == *tool.name);
        let tools = listed.offer.tools.iter().filter(|_| listed.connected);
        tools.filter(is_held).cloned().collect()
    }

    /// Accepts the current definition of a pinned tool; with `digest`, only if the digest matches.
    ///
    /// # Errors
    /// [`PinError`].
    pub(super) fn accept(&self, tool: &str, digest: Option<&str>) -> Result<AcceptedTool, PinError> {
        let server = &self.config.name;
        if !self.config.gavel.pin {
            return Err(PinError::NotPinned(server.to_string()));
        }
        let mut listed = lock(&self.listed);
        let mut known = listed.offer.tools.iter().filter(|_| listed.connected);
        let Some(tool) = known.find(|known| &*known.name == tool).cloned() else {
            return Err(PinError::UnknownTool {
                server: server.to_string(),
                tool: tool.to_owned(),
            });
        };
        if digest.is_some_and(|digest| *digest != *tool.digest) {
            return Err(PinError::OtherDigest {
                server: server.to_string(),
                tool: tool.name.to_string(),
                now: tool.digest.to_string(),
            });
        }
        let before = self.common.pins.accept(server, &tool.name, &tool.digest)?;
        self.publish(&mut listed);
        Ok(AcceptedTool { before, tool })
    }

    /// Are the tools of this server pinned?
    pub(super) fn is_pinned(&self) -> bool {
        self.config.gavel.pin
    }

    /// Checks whether another process has accepted tools that are held back.
    ///
    /// It reads a file and may wait for its lock, so it must not run in an async task.
    pub(super) fn look_again(&self) {
        let mut listed = lock(&self.listed);
        if !listed.held.is_empty() {
            self.publish(&mut listed);
        }
    }

    fn publish(&self, listed: &mut Listed) {
        if !listed.connected {
            return;
        }
        let mut offer = Offer {
            tools: listed.offer.tools.clone(),
            left_out: listed.offer.left_out.clone(),
        };
        if self.config.gavel.pin {
            let held = self.hold_back(&mut offer);
            for left in held.iter().filter(|left| !listed.held.contains(left)) {
                log::line!(
                    self.source.log,
                    warn,
                    "tool held back",
                    tool = left.tool,
                    reason = left.reason,
                    "tool held back"
                );
            }
            for left in &listed.held {
                if !held.iter().any(|still| still.tool == left.tool) {
                    log::line!(
                        self.source.log,
                        info,
                        "tool no longer held back",
                        tool = left.tool,
                        "tool no longer held back"
                    );
                }
            }
            offer.left_out.extend(held.iter().cloned());
            listed.held = held;
        }
        self.common.registry.up(&self.config.name, offer);
    }

    /// Removes the tools from the offer whose definition is not the accepted one.
    fn hold_back(&self, offer: &mut Offer) -> Vec<LeftOut> {
        let name = &self.config.name;
        let digests: Vec<_> = offer.tools.iter().map(|tool| (&*tool.name, &*tool.digest)).collect();
        let held: Vec<_> = match self.common.pins.check(name, &digests) {
            Ok(changed) => changed
                .into_iter()
                .map(|tool| {
                    let reason = format!(
                        "its definition is not the accepted one; `gavel mcp inspect {name} {tool}` shows it, \
                         `gavel mcp accept {name} {tool}` accepts it"
                    );
                    (tool.to_owned(), reason)
                })
                .collect(),
            // The accepted definitions are unknown, so all tools are held back.
            Err(error) => {
                let reason = format!("the accepted definitions could not be read or stored: {error}");
                digests
                    .iter()
                    .map(|(tool, _)| ((*tool).to_owned(), reason.clone()))
                    .collect()
            }
        };
        offer
            .tools
            .retain(|tool| !held.iter().any(|(held, _)| **held == *tool.name));
        let left_out = held.into_iter().map(|(tool, reason)| LeftOut {
            server: name.clone(),
            tool,
            reason,
        });
        left_out.collect()
    }
}

impl Listener for ToolListing {
    fn listed(&self, list: &[Value]) {
        let mut listed = lock(&self.listed);
        let offer = definition::read(&self.config, &self.source, list, &listed.offer.tools);
        let new = |left: &&LeftOut| !listed.offer.left_out.contains(left);
        for left in offer.left_out.iter().filter(new) {
            log::line!(
                self.source.log,
                warn,
                "tool left out",
                tool = left.tool,
                reason = left.reason,
                "tool left out"
            );
        }
        listed.offer = offer;
        for name in self.config.gavel.tools.keys() {
            if !listed.offer.tools.iter().any(|tool| *tool.name == **name) {
                log::line!(
                    self.source.log,
                    warn,
                    "settings for no tool",
                    tool = name,
                    "settings for a tool that is not offered"
                );
            }
        }
        listed.connected = true;
        self.publish(&mut listed);
        is_up(&self.config).set(1.0);
    }

    fn lost(&self, reason: &str, soon: bool) {
        // The lock is held, so that no other task adds the tools again at the same time.
        let mut listed = lock(&self.listed);
        listed.connected = false;
        self.common.registry.down(&self.config.name, reason, soon);
        is_up(&self.config).set(0.0);
    }
}

pub(super) fn is_up(server: &ServerConfig) -> Gauge {
    metrics::gauge!("gavel_mcp_server_up", "server" => server.name.to_string())
}
