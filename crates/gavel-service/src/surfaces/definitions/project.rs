//! The agents of one project, checked together, and why one of them cannot run now.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::FileAgents;
use crate::api::problem::Code;
use crate::domain::definition::{Agent, Agents, Definition, Form, MOST_REPORTED, ReadError, Source, check};
use crate::domain::ids::ProjectId;
use crate::domain::planning_session::{PLANNER, READS, TASK_WORKER};
use crate::domain::text;
use crate::engine::Toolset;
use crate::engine::agent::Models;
use crate::engine::snapshot::DefinitionSnapshot;
use crate::engine::toolset::{by_reason, clash};
use crate::ports::definitions::StoredVersion;
use crate::ports::tools::Catalog;
use crate::surfaces::definitions::invalid_definition;
use crate::surfaces::problem::Problem;

/// The place of errors in a definition that came through the API.
pub(super) const BODY: &str = "body";

/// Longest reason why an agent cannot run, in bytes.
const LONGEST_REASON: usize = 4 << 10;

/// The agents of one project.
#[derive(Debug, Default)]
pub struct Project {
    /// The valid agents, checked together.
    pub agents: Agents,
    /// Versions of the agents that came through the API.
    pub versions: BTreeMap<String, i64>,
    /// Agents that came through the API and became invalid because a file changed.
    pub broken: BTreeMap<String, Broken>,
    /// The snapshots that runs were begun with, by agent.
    snapshots: Mutex<HashMap<String, Arc<DefinitionSnapshot>>>,
}

impl Project {
    /// A valid agent of this project, to begin a run with.
    ///
    /// # Errors
    /// There is no such agent.
    pub fn choose(&self, project: ProjectId, agent: &str) -> Result<Chosen, Problem> {
        Ok(Chosen {
            project,
            name: agent.into(),
            version: self.versions.get(agent).copied(),
            snapshot: self.snapshot(agent).ok_or(Code::NotFound)?,
        })
    }

    /// The snapshot of a valid agent; runs that begin with the same agents share it.
    fn snapshot(&self, agent: &str) -> Option<Arc<DefinitionSnapshot>> {
        let mut snapshots = self.snapshots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = snapshots.get(agent) {
            return Some(Arc::clone(known));
        }
        let snapshot = Arc::new(DefinitionSnapshot::of(agent, &self.agents)?);
        snapshots.insert(agent.to_owned(), Arc::clone(&snapshot));
        Some(snapshot)
    }
}

/// An agent that a run begins with.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// Its project.
    pub project: ProjectId,
    /// Its name.
    pub name: Arc<str>,
    /// The version of its definition, where it has any.
    pub version: Option<i64>,
    /// The definitions that it needs, with its own.
    pub snapshot: Arc<DefinitionSnapshot>,
}

/// The agents of a project after a check.
#[derive(Debug, Default)]
pub(super) struct CheckedProject {
    pub(super) project: Project,
    /// All errors.
    pub(super) errors: Vec<ReadError>,
    /// All warnings; they do not prevent the use of a definition.
    pub(super) warnings: Vec<ReadError>,
}

/// An agent that was valid when it was put.
#[derive(Debug)]
pub struct Broken {
    /// Its definition.
    pub definition: Definition,
    /// Its errors now.
    pub errors: Vec<ReadError>,
}

pub(super) fn definition<'a>(project: &'a Project, name: &str) -> Option<&'a Definition> {
    let right = project.agents.get(name).map(|agent| &*agent.definition);
    right.or_else(|| Some(&project.broken.get(name)?.definition))
}

/// Does an agent of the project have this name, even an invalid one?
pub(super) fn is_agent(project: &Project, name: &str) -> bool {
    project.agents.contains_key(name) || project.broken.contains_key(name)
}

/// Checks the agents of files and of the store together, including `also`, the one to be put.
pub(super) fn checked_project(
    files: &FileAgents,
    with_files: bool,
    stored: &[StoredVersion],
    also: Option<Source>,
) -> CheckedProject {
    if stored.is_empty() && also.is_none() {
        let agents = if with_files {
            files.agents.clone()
        } else {
            Agents::new()
        };
        let project = Project {
            agents,
            ..Project::default()
        };
        return CheckedProject {
            project,
            ..CheckedProject::default()
        };
    }
    let own = |agent: &Agent| Source {
        file: agent.file.clone(),
        form: Form::Json,
        bytes: agent.definition.to_json().to_string().into_bytes(),
    };
    let mut sources: Vec<_> = files.agents.values().filter(|_| with_files).map(own).collect();
    // An agent from a file replaces one of the same name from the API.
    let is_kept = |one: &&StoredVersion| !with_files || !files.agents.contains_key(&*one.agent);
    let kept: Vec<_> = stored.iter().filter(is_kept).collect();
    sources.extend(kept.iter().map(|one| Source {
        file: file_of(one),
        form: Form::Json,
        bytes: one.definition.as_bytes().to_vec(),
    }));
    sources.extend(also);
    let checked = check(&sources, &files.schemas);
    let versions = kept.iter().map(|one| (one.agent.to_string(), one.version));
    let versions = versions.collect();
    let broken = kept
        .into_iter()
        .filter(|one| !checked.agents.contains_key(&*one.agent))
        .filter_map(|one| {
            let file = file_of(one);
            // It is valid by itself, as it was when it was put.
            let definition = Definition::read(one.definition.as_bytes(), Form::Json, &file).ok()?;
            let errors = checked.errors.iter().filter(|error| error.file == file);
            let mut errors: Vec<_> = errors.cloned().collect();
            if errors.is_empty() {
                let is_agent =
                    |name: &str| stored.iter().any(|one| *one.agent == *name) || files.agents.contains_key(name);
                errors.extend(lacking(&definition, &file, &checked.agents, is_agent));
            }
            Some((one.agent.to_string(), Broken { definition, errors }))
        })
        .collect();
    let project = Project {
        agents: checked.agents,
        versions,
        broken,
        ..Project::default()
    };
    CheckedProject {
        project,
        errors: checked.errors,
        warnings: checked.warnings,
    }
}

/// Checks a definition to be put together with the other agents. Returns it with its warnings.
pub(super) fn checked_beside(
    files: &FileAgents,
    is_default: bool,
    stored: &[StoredVersion],
    name: &str,
    source: Source,
) -> Result<(Definition, Vec<ReadError>), Problem> {
    let read = Definition::read_named(&source.bytes, source.form);
    let others: Vec<_> = stored.iter().filter(|one| &*one.agent != name).cloned().collect();
    let CheckedProject {
        project,
        mut errors,
        mut warnings,
    } = checked_project(files, is_default, &others, Some(source));
    let called = match &read {
        Ok(definition) => Some(&definition.name),
        Err(called) => called.as_ref(),
    };
    let misnamed = called.filter(|called| *called != name).map(|called| ReadError {
        file: BODY.to_owned(),
        line: None,
        field: "name".to_owned(),
        found: format!("{called:?}"),
        allowed: format!("{name:?}, as in the path"),
    });
    let definition = match read {
        Ok(definition) if misnamed.is_none() => definition,
        // Without a valid definition, the other agents' errors are meaningless. If the name differs from the path, a
        // conflict with another agent's name is irrelevant.
        _ => {
            errors.retain(|error| error.file == BODY && !(misnamed.is_some() && error.field == "name"));
            errors.extend(misnamed);
            return Err(invalid_definition(errors));
        }
    };
    if !errors.is_empty() {
        // Errors that exist already because a file changed do not block other definitions, nor the repair of agents one
        // by one.
        let before = checked_project(files, is_default, stored, None).errors;
        // `allowed` lists all agents, including the new one, so it is not compared.
        let what = |error: &ReadError| (error.file.clone(), error.field.clone(), error.found.clone());
        let known: BTreeSet<_> = before.iter().map(what).collect();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for error in &before {
            *counts.entry(&error.file).or_default() += 1;
        }
        // An agent with more errors than are reported may have other ones reported now; it was invalid before.
        let unreported = |file: &str| counts.get(file).is_some_and(|count| *count > MOST_REPORTED);
        errors.retain(|error| error.file == BODY || !(known.contains(&what(error)) || unreported(&error.file)));
    }
    if !errors.is_empty() {
        return Err(invalid_definition(errors));
    }
    warnings.retain(|warning| warning.file == BODY);
    let schema = project
        .agents
        .get(name)
        .and_then(|agent| agent.output_schema.as_deref());
    let definition = match schema {
        Some(schema) => whole(definition, schema)?,
        None => definition,
    };
    Ok((definition, warnings))
}

/// The definition with the schema that it names inserted. A version must never change, and its hash must cover all of
/// it, even if the schema's file changes.
fn whole(mut definition: Definition, schema: &Value) -> Result<Definition, Problem> {
    definition.put_in_schema(schema);
    // With the schema, it may exceed the maximum length.
    let text = definition.to_json().to_string();
    Definition::read(text.as_bytes(), Form::Json, BODY).map_err(invalid_definition)
}

/// The place of errors in a stored version.
fn file_of(stored: &StoredVersion) -> String {
    format!("{} (version {})", stored.agent, stored.version)
}

/// The error of an agent that calls invalid agents.
fn lacking(definition: &Definition, file: &str, right: &Agents, is_agent: impl Fn(&str) -> bool) -> Option<ReadError> {
    let invalid: BTreeSet<_> = definition
        .calls(is_agent)
        .into_iter()
        .filter(|name| !right.contains_key(*name))
        .collect();
    let invalid: Vec<_> = invalid.into_iter().collect();
    (!invalid.is_empty()).then(|| ReadError {
        file: file.to_owned(),
        line: None,
        field: "the agents that it calls".to_owned(),
        found: format!("{}, invalid or calling an invalid agent", invalid.join(", ")),
        allowed: "valid agents".to_owned(),
    })
}

pub(super) fn render_errors(errors: &[ReadError]) -> String {
    let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
    text::capped(&errors.join("; "), LONGEST_REASON).into_owned()
}

/// What an agent lacks now, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The agent cannot run.
    Unavailable(String),
    /// The agent works without some of its tools: only an agent of planning sessions does.
    SomeTools(String),
}

/// Why an agent cannot run now.
pub(super) fn unavailable(name: &str, agents: &Agents, catalog: &Catalog, models: &Models) -> Option<String> {
    match lack(name, agents, catalog, models)? {
        Lack::Unavailable(reason) => Some(reason),
        Lack::SomeTools(_) => None,
    }
}

/// What an agent lacks now: because of its own tools and model, or because of an agent that it can call. Each agent is
/// checked once, however often it is named.
pub fn lack(name: &str, agents: &Agents, catalog: &Catalog, models: &Models) -> Option<Lack> {
    let own = |name: &str| own_reason(&agents.get(name)?.definition, agents, catalog, models);
    if let Some(reason) = own(name) {
        return Some(match works_without(name, agents, catalog, models) {
            true => Lack::SomeTools(reason),
            false => Lack::Unavailable(reason),
        });
    }
    let called = led_to(name, agents);
    let mut reasons = called.into_iter().filter_map(|called| Some((called, own(called)?)));
    let (called, reason) = reasons.next()?;
    Some(Lack::Unavailable(format!(
        "it depends on {called}, which is unavailable: {reason}"
    )))
}

/// Whether the agent can run with the tools that are offered: a plan is made with those, if they can read the
/// repository, and worked through with those.
fn works_without(name: &str, agents: &Agents, catalog: &Catalog, models: &Models) -> bool {
    let needed: &[&str] = match name {
        PLANNER => &READS,
        TASK_WORKER => &[],
        _ => return false,
    };
    let Some(agent) = agents.get(name) else {
        return false;
    };
    let mut offered = (*agent.definition).clone();
    let is_offered = |name: &str| catalog.tools.iter().any(|tool| tool.is_called(name));
    offered.tools.retain(|name| is_offered(name));
    let is_enough = !offered.tools.is_empty() && needed.iter().all(|name| is_offered(name));
    is_enough && own_reason(&offered, agents, catalog, models).is_none()
}

pub(super) fn own_reason(
    definition: &Definition,
    agents: &Agents,
    catalog: &Catalog,
    models: &Models,
) -> Option<String> {
    if let Err(reason) = models.of(definition) {
        return Some(reason);
    }
    let is_agent = |name: &str| agents.contains_key(name);
    if let Some(clash) = clash(catalog, definition, is_agent) {
        return Some(clash);
    }
    let missing = Toolset::build(catalog, &definition.server_tools(is_agent), &[]).missing;
    let reported = by_reason(&missing).into_iter();
    let reported: Vec<_> = reported
        .map(|(reason, names)| format!("{}: {reason}", names.join(", ")))
        .collect();
    (!reported.is_empty()).then(|| reported.join("; "))
}

/// Every agent that an agent can call, directly or indirectly, once.
fn led_to<'a>(name: &str, agents: &'a Agents) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    let mut open = vec![name];
    while let Some(next) = open.pop() {
        let Some(agent) = agents.get(next) else { continue };
        let names: BTreeSet<&str> = agent
            .definition
            .calls(|name| agents.contains_key(name))
            .into_iter()
            .collect();
        for called in names {
            if let Some((known, _)) = agents.get_key_value(called)
                && !found.contains(&known.as_str())
            {
                found.push(known);
                open.push(known);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing::{catalog_of, tool_on};

    /// Promise: bounded faults. A few small definitions that name each other often must not make the list slow.
    #[test]
    fn an_agent_that_is_named_often_is_looked_at_once() {
        let last = "name: a5\ndescription: d\nsystemPrompt: s\ntools: [nowhere]\n".to_owned();
        let steps = |n: usize| {
            let steps = (0..500)
                .map(|step| format!("  - {{ name: s{step}, agent: a{n}, input: {{ query: \"${{query}}\" }} }}\n"));
            steps.collect::<String>()
        };
        let flows = (0..5).map(|n| {
            let steps = steps(n + 1);
            format!("name: a{n}\ndescription: d\nflow_type: sequential\nsteps:\n{steps}")
        });
        let sources = flows.chain([last]).enumerate().map(|(n, text)| Source {
            file: format!("a{n}.yaml"),
            form: Form::Yaml,
            bytes: text.into_bytes(),
        });
        let checked = check(&sources.collect::<Vec<_>>(), &[]);
        assert_eq!(checked.errors, []);
        let reason = lack("a0", &checked.agents, &Catalog::default(), &Models::default());
        let start = "it depends on a5, which is unavailable: nowhere: ";
        assert!(
            matches!(&reason, Some(Lack::Unavailable(reason)) if reason.starts_with(start)),
            "{reason:?}"
        );
    }

    /// The agents of planning sessions work without some tools, but none plans without reading the repository.
    #[test]
    fn an_agent_of_planning_sessions_is_available_with_the_tools_that_a_session_needs() {
        let tools = format!("[{}, web_fetch]", READS.join(", "));
        let definition = |name: &str, tools: &str| Source {
            file: format!("{name}.yaml"),
            form: Form::Yaml,
            bytes: format!("name: {name}\ndescription: d\nsystemPrompt: s\ntools: {tools}\n").into_bytes(),
        };
        let sources = [PLANNER, TASK_WORKER, "other"].map(|name| definition(name, &tools));
        let checked = check(&sources, &[]);
        assert_eq!(checked.errors, []);
        let lacks = |offered: &[&str], name: &str| {
            let catalog = catalog_of(offered.iter().map(|tool| tool_on("s", tool)));
            match lack(name, &checked.agents, &catalog, &Models::default()) {
                None => "nothing",
                Some(Lack::SomeTools(_)) => "some tools",
                Some(Lack::Unavailable(_)) => "all",
            }
        };
        let all = [&READS[..], &["web_fetch"]].concat();
        for (offered, planner, worker, other) in [
            (&[][..], "all", "all", "all"),
            (&["web_fetch"], "all", "some tools", "all"),
            (&READS[1..], "all", "some tools", "all"),
            (&READS, "some tools", "some tools", "all"),
            (&all, "nothing", "nothing", "nothing"),
        ] {
            let found = [PLANNER, TASK_WORKER, "other"].map(|name| lacks(offered, name));
            assert_eq!(found, [planner, worker, other], "{offered:?}");
        }
    }
}
