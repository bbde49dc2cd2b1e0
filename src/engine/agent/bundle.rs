//! The definitions that a run needs, as one text. A process that continues the run uses the definitions it started
//! with, even if the files have changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::domain::canonical;
use crate::domain::definition::{Agents, Definition, Form};
use crate::ports::runs::Snapshot;

/// An agent and every agent that it can call, directly or indirectly, by name.
#[derive(Clone, Debug)]
pub struct DefinitionSnapshot {
    members: BTreeMap<String, Member>,
    snapshot: Snapshot,
}

/// One agent of a snapshot.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its definition.
    pub definition: Arc<Definition>,
    /// The schema of its output, wherever it was defined.
    pub output_schema: Option<Arc<Value>>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    agents: BTreeMap<String, StoredMember>,
}

#[derive(Serialize, Deserialize)]
struct StoredMember {
    definition: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output_schema: Option<Value>,
}

impl DefinitionSnapshot {
    /// The snapshot of this agent, from the valid agents; `None` when it is not among them.
    #[must_use]
    pub fn of(name: &str, agents: &Agents) -> Option<Self> {
        let mut members = BTreeMap::new();
        let mut open = vec![name.to_owned()];
        while let Some(name) = open.pop() {
            if members.contains_key(&name) {
                continue;
            }
            let agent = agents.get(&name)?;
            let called = agent.definition.calls(|name| agents.contains_key(name));
            open.extend(called.into_iter().map(str::to_owned));
            let member = Member {
                definition: Arc::clone(&agent.definition),
                output_schema: agent.output_schema.clone(),
            };
            members.insert(name, member);
        }
        let snapshot = text(&members);
        Some(Self { members, snapshot })
    }

    /// One of its agents, by name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Member> {
        self.members.get(name)
    }

    /// The snapshot in its stored form.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot.clone()
    }

    /// Reads a stored snapshot.
    ///
    /// # Errors
    /// The text is of a later version, or damaged; in words for an operator.
    pub fn read(snapshot: &Snapshot) -> Result<Self, String> {
        let stored: Stored = serde_json::from_str(&snapshot.text).map_err(|error| error.to_string())?;
        let mut members = BTreeMap::new();
        for (name, member) in stored.agents {
            let text = member.definition.to_string();
            let definition = Definition::read(text.as_bytes(), Form::Json, &name).map_err(|errors| {
                let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
                lines.join("; ")
            })?;
            let member = Member {
                definition: Arc::new(definition),
                output_schema: member.output_schema.map(Arc::new),
            };
            members.insert(name, member);
        }
        Ok(Self {
            members,
            snapshot: snapshot.clone(),
        })
    }

    /// Reads a stored snapshot, or returns `known` if it is the same one: runs that call each other share it.
    ///
    /// # Errors
    /// As [`DefinitionSnapshot::read`].
    pub fn read_once(snapshot: &Snapshot, known: Option<&Arc<Self>>) -> Result<Arc<Self>, String> {
        match known {
            Some(known) if known.snapshot.hash == snapshot.hash => Ok(Arc::clone(known)),
            _ => Self::read(snapshot).map(Arc::new),
        }
    }
}

fn text(members: &BTreeMap<String, Member>) -> Snapshot {
    let members = members.iter().map(|(name, member)| {
        let stored = StoredMember {
            definition: member.definition.to_json(),
            output_schema: member.output_schema.as_deref().cloned(),
        };
        (name.clone(), stored)
    });
    let stored = Stored {
        agents: members.collect(),
    };
    let value = serde_json::to_value(&stored).unwrap_or_else(|error| unreachable!("it prints as JSON: {error}"));
    let text = canonical::to_raw(&value);
    Snapshot {
        hash: hex::encode(Sha256::digest(text.get())).into(),
        text: text.get().into(),
    }
}
