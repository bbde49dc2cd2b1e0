//! The definitions that a run needs, as one text. A process that continues the run uses the definitions it started
//! with, even if the files have changed.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::toolset::Toolset;
use super::verdict::OutputContract;
use crate::domain::canonical;
use crate::domain::definition::{Agents, Definition, Form};
use crate::ports::records::Kept;

/// An agent and every agent that it can call, directly or indirectly, by name.
#[derive(Clone, Debug)]
pub struct DefinitionSnapshot {
    members: BTreeMap<String, Member>,
    snapshot: Kept,
}

/// One agent of a snapshot.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its definition.
    pub definition: Arc<Definition>,
    /// The schema of its output, wherever it was defined.
    pub output_schema: Option<Arc<Value>>,
    shared: Arc<Shared>,
}

/// What the runs of one agent share in this process. It is made for the first of them.
#[derive(Debug, Default)]
struct Shared {
    contract: OnceLock<Result<Option<Arc<OutputContract>>, String>>,
    /// The last complete toolset, and whether it can end a loop.
    toolset: ArcSwapOption<(Arc<Toolset>, bool)>,
}

impl Member {
    fn new(definition: Arc<Definition>, output_schema: Option<Arc<Value>>) -> Self {
        Self {
            definition,
            output_schema,
            shared: Arc::default(),
        }
    }

    /// The output that it must return, if its definition has one.
    ///
    /// # Errors
    /// Its schema is invalid.
    pub(super) fn contract(&self) -> Result<Option<Arc<OutputContract>>, String> {
        let made = self.shared.contract.get_or_init(|| {
            let (Some(output), Some(schema)) = (&self.definition.output, &self.output_schema) else {
                return Ok(None);
            };
            OutputContract::new(output, schema).map(|contract| Some(Arc::new(contract)))
        });
        made.clone()
    }

    /// Its complete toolset for this generation of the catalog, if an earlier run made it.
    pub(super) fn toolset(&self, generation: u64, in_loop: bool) -> Option<Arc<Toolset>> {
        let kept = self.shared.toolset.load();
        let (toolset, of_loop) = kept.as_deref()?;
        (toolset.generation == generation && *of_loop == in_loop).then(|| Arc::clone(toolset))
    }

    /// Keeps a complete toolset for later runs.
    pub(super) fn keep_toolset(&self, toolset: &Arc<Toolset>, in_loop: bool) {
        self.shared
            .toolset
            .store(Some(Arc::new((Arc::clone(toolset), in_loop))));
    }
}

#[derive(Serialize, Deserialize)]
struct Stored {
    agents: BTreeMap<String, StoredMember>,
}

#[derive(Serialize, Deserialize)]
struct StoredMember {
    definition: Value,
    output_schema: Option<Value>,
}

impl DefinitionSnapshot {
    /// The snapshot of this agent, from the valid agents; `None` when it is not among them.
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
            let member = Member::new(Arc::clone(&agent.definition), agent.output_schema.clone());
            members.insert(name, member);
        }
        let snapshot = text(&members);
        Some(Self { members, snapshot })
    }

    /// The same definitions, with another schema of this agent's output.
    pub fn with_output_schema(&self, name: &str, schema: Value) -> Self {
        let mut members = self.members.clone();
        if let Some(member) = members.get_mut(name) {
            *member = Member::new(Arc::clone(&member.definition), Some(Arc::new(schema)));
        }
        let snapshot = text(&members);
        Self { members, snapshot }
    }

    /// One of its agents, by name.
    pub fn get(&self, name: &str) -> Option<&Member> {
        self.members.get(name)
    }

    /// The snapshot in its stored form.
    pub fn snapshot(&self) -> Kept {
        self.snapshot.clone()
    }

    /// Reads a stored snapshot.
    ///
    /// # Errors
    /// The text is of a later version, or damaged; in words for an operator.
    pub fn read(snapshot: &Kept) -> Result<Self, String> {
        let stored: Stored = serde_json::from_str(&snapshot.text).map_err(|error| error.to_string())?;
        let mut members = BTreeMap::new();
        for (name, member) in stored.agents {
            let text = member.definition.to_string();
            let definition = Definition::read(text.as_bytes(), Form::Json, &name).map_err(|errors| {
                let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
                lines.join("; ")
            })?;
            let member = Member::new(Arc::new(definition), member.output_schema.map(Arc::new));
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
    pub fn read_once(snapshot: &Kept, known: Option<&Arc<Self>>) -> Result<Arc<Self>, String> {
        match known {
            Some(known) if known.snapshot.hash == snapshot.hash => Ok(Arc::clone(known)),
            _ => Self::read(snapshot).map(Arc::new),
        }
    }
}

fn text(members: &BTreeMap<String, Member>) -> Kept {
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
    Kept::new(text.get())
}
