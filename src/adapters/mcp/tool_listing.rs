//! A server's tools on their way to the catalog: read, and held back where they are pinned.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::Gauge;
use serde_json::Value;

use super::config::ServerConfig;
use super::definition::{self, Offer};
use super::link::Listener;
use super::log;
use super::pins::{AcceptedTool, PinError};
use super::server::Common;
use super::source::Source;
use crate::domain::tool::Tool;
use crate::ports::tools::LeftOut;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What one server lists, and what of it is on offer.
pub(super) struct ToolListing {
    config: Arc<ServerConfig>,
    source: Arc<Source>,
    common: Arc<Common>,
    listed: Mutex<Listed>,
}

/// What a server offers.
#[derive(Default)]
struct Listed {
    /// All that could be read, held back or not.
    offer: Offer,
    /// Is the server there? Only then may its tools be put into the catalog.
    connected: bool,
    /// What is held back.
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

    /// The tools that are held back, as the server gives them now.
    pub(super) fn held_back(&self) -> Vec<Arc<Tool>> {
        let listed = lock(&self.listed);
        let is_held = |tool: &&Arc<Tool>| listed.held.iter().any(|held| *held.tool == *tool.name);
        let tools = listed.offer.tools.iter().filter(|_| listed.connected);
        tools.filter(is_held).cloned().collect()
    }

    /// Accepts the definition a pinned tool has now; with `digest` only if that is its digest.
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

    /// Is this a server whose tools are pinned?
    pub(super) fn is_pinned(&self) -> bool {
        self.config.gavel.pin
    }

    /// What is held back may have been accepted meanwhile, by another process.
    ///
    /// It reads a file and may wait for its lock, so it is no work for an async task.
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

    /// Takes the tools out of the offer that are not as accepted.
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
            // What is accepted is not known, so nothing is.
            Err(error) => {
                let reason = format!("what is accepted could not be read or kept: {error}");
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
        // The lock is kept, so that nobody puts the tools back at the same time.
        let mut listed = lock(&self.listed);
        listed.connected = false;
        self.common.registry.down(&self.config.name, reason, soon);
        is_up(&self.config).set(0.0);
    }
}

pub(super) fn is_up(server: &ServerConfig) -> Gauge {
    metrics::gauge!("gavel_mcp_server_up", "server" => server.name.to_string())
}
