//! An open connection as calls use it, and the state of its link.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rmcp::service::{Peer, RoleClient};
use serde_json::Value;

use super::background::SideTasks;
use super::connect::Open;
use super::definition;
use super::http::direct::Direct;
use super::source::Source;
use crate::domain::tool::Tool;

/// Maximum bytes of the name and version of a server's software.
const MAX_SOFTWARE: usize = 256;

/// An open connection as calls use it.
pub(super) struct Session {
    pub(super) peer: Peer<RoleClient>,
    pub(super) direct: Option<Arc<Direct>>,
    pub(super) background: SideTasks,
    pub(super) source: Arc<Source>,
    pub(super) protocol: String,
    pub(super) software: Option<String>,
    pub(super) pid: Option<u32>,
    /// The digests of the tools that the server last listed over it, by name.
    listed: Mutex<HashMap<String, Vec<String>>>,
    /// Why it is no longer usable.
    gone: OnceLock<String>,
}

impl Session {
    /// Makes a session from an open connection.
    pub(super) fn of(open: &mut Open, source: &Arc<Source>, background: &SideTasks) -> Arc<Self> {
        let info = open.peer_info();
        Arc::new(Self {
            peer: open.running.peer().clone(),
            direct: open.direct.take(),
            background: background.clone(),
            source: source.clone(),
            protocol: info
                .as_ref()
                .map(|info| source.words(info.protocol_version.as_str(), MAX_SOFTWARE))
                .unwrap_or_default(),
            software: info.and_then(|info| info.server_info.clone()).map(|software| {
                let software = format!("{} {}", software.name, software.version);
                source.words(software.trim(), MAX_SOFTWARE)
            }),
            pid: open.pid,
            listed: Mutex::default(),
            gone: OnceLock::new(),
        })
    }

    pub(super) fn is_usable(&self) -> bool {
        self.gone.get().is_none() && !self.peer.is_transport_closed()
    }

    /// Marks it as no longer usable, for this reason. Returns whether it was usable before.
    pub(super) fn end(&self, why: &str) -> bool {
        self.gone.set(why.to_owned()).is_ok()
    }

    /// Why it is no longer usable.
    pub(super) fn ended(&self) -> Option<&str> {
        self.gone.get().map(String::as_str)
    }

    /// Does its server offer exactly this definition of the tool?
    pub(super) fn offers(&self, tool: &Tool) -> bool {
        let listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        let digests = listed.get(&*tool.name);
        digests.is_some_and(|digests| digests.iter().any(|digest| **digest == *tool.digest))
    }

    pub(super) fn now_lists(&self, list: &[Value]) {
        *self.listed.lock().unwrap_or_else(PoisonError::into_inner) = definition::digests(list);
    }
}

/// The state of a connection.
#[derive(Clone)]
pub(super) enum State {
    /// Being opened. `lost` is why the previous connection ended, if there was one.
    Connecting {
        lost: Option<Arc<str>>,
    },
    Up(Arc<Session>),
    Down(Arc<str>),
    Closed,
}
