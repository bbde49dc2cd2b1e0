//! `gavel agents validate`: every error in every definition, at once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;

use super::{configured, count, load, render_error};
use crate::app;
use crate::cli::exit::Exit;
use crate::cli::{mcp, output};
use crate::config::{Flags, Resolved};
use crate::domain::definition::{Form, GrantedTool, ReadError, unknown_name_message, well_known_tool};
use crate::domain::tool::Tool;
use crate::engine::Toolset;
use crate::engine::toolset::named_twice;
use crate::ports::tools::Catalog;

/// Options of `gavel agents validate`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Directories and files; without any, the agents of this configuration
    ///
    /// A file is checked together with its directory, which is searched for its sub-agents, its steps and schemas/.
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Also query the MCP servers of this configuration: a tool that no server offers is an error
    #[arg(long)]
    pub(crate) tools: bool,
    /// As JSON: {files, agents, errors, warnings}, each error as {file, line, field, found, allowed}
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  gavel agents validate                      the directory agents, or the one that GAVEL_AGENTS names
  gavel agents validate agents/reviewer.md   one file of it
  gavel agents validate --tools              with the tools that the MCP servers offer now
  gavel agents validate .gemini/agents       Gemini CLI's agents, as they are
  gavel agents validate --json | jq '.errors[] | \"\\(.file):\\(.line) \\(.field)\"'

Exit status 0 if everything is valid (warnings are allowed), 2 if there is an error.";

/// The findings in all given paths.
#[derive(Default)]
struct Findings {
    files: BTreeSet<String>,
    /// Directories without a definition.
    empty: BTreeSet<String>,
    agents: BTreeSet<(String, String)>,
    tools: Vec<GrantedTool>,
    errors: Vec<ReadError>,
    warnings: Vec<ReadError>,
    /// The servers that are not connected, if a tool is missing.
    not_connected: String,
}

impl Findings {
    /// Adds the findings of a directory, or those about one of its files.
    fn add(&mut self, loaded: app::Loaded, only: Option<&str>) {
        let wanted = |file: &str| only.is_none_or(|only| only == file);
        if loaded.files.is_empty() {
            self.empty.insert(loaded.place.clone());
        }
        self.files.extend(loaded.files.into_iter().filter(|file| wanted(file)));
        for (name, agent) in loaded.checked.agents {
            if wanted(&agent.file) {
                self.agents.insert((agent.file, name));
            }
        }
        for tool in loaded.checked.tools {
            if wanted(&tool.file) && !self.tools.contains(&tool) {
                self.tools.push(tool);
            }
        }
        for (list, found) in [
            (&mut self.errors, loaded.checked.errors),
            (&mut self.warnings, loaded.checked.warnings),
        ] {
            for one in found {
                if wanted(&one.file) && !list.contains(&one) {
                    list.push(one);
                }
            }
        }
    }

    /// Reports each tool that no server offers as an error.
    fn look_for_tools(&mut self, catalog: &Catalog) {
        let called = |name: &str| {
            catalog
                .tools
                .iter()
                .filter(|tool| tool.is_called(name))
                .collect::<Vec<_>>()
        };
        let unique = |tool: &Arc<Tool>| match *called(&tool.name) {
            [_] => tool.name.to_string(),
            _ => tool.qualified_name(),
        };
        let offered: BTreeSet<String> = catalog.tools.iter().map(unique).collect();
        let mut invalid = BTreeSet::new();
        for tool in &self.tools {
            let (found, allowed) = if tool.is_agent {
                let Some(found) = named_twice(catalog, &tool.name) else {
                    continue;
                };
                (found, "a name that means one of the two".to_owned())
            } else {
                let missing = Toolset::build(catalog, std::slice::from_ref(&tool.name), &[]).missing;
                let Some(missing) = missing.first() else { continue };
                let alike: Vec<_> = called(&tool.name).iter().map(|one| one.qualified_name()).collect();
                let (found, allowed) = match well_known_tool(&tool.name) {
                    _ if !alike.is_empty() => ("several servers offer it", alike.join(" or ")),
                    Some(of_another_product) => (missing.reason.as_str(), of_another_product),
                    None => {
                        let others = self.agents.iter().filter(|(file, _)| *file != tool.file);
                        let known = others.map(|(_, name)| name).chain(&offered).map(String::as_str);
                        let message = unknown_name_message(&tool.name, &known.collect::<Vec<_>>());
                        let allowed = format!("a tool that a server offers, or another agent: {message}");
                        (missing.reason.as_str(), allowed)
                    }
                };
                (format!("{:?}: {found}", tool.name), allowed)
            };
            invalid.insert(tool.file.clone());
            self.errors.push(ReadError {
                file: tool.file.clone(),
                line: tool.line,
                field: tool.field.clone(),
                found,
                allowed,
            });
        }
        self.agents.retain(|(file, _)| !invalid.contains(file));
        self.errors.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    }

    fn place_is_invalid(&mut self, path: &Path, found: String, allowed: String) {
        self.errors.push(ReadError {
            file: path.display().to_string(),
            line: None,
            field: "the path".to_owned(),
            found,
            allowed,
        });
    }
}

pub(super) fn run(args: &Args, flags: &Flags) -> anyhow::Result<Exit> {
    reported(args, &looked_at(&args.paths, || configured(flags))?)
}

/// Like [`run`], but also queries the servers.
pub(crate) async fn run_with_tools(args: Args, resolved: Resolved) -> anyhow::Result<Exit> {
    let mut findings = looked_at(&args.paths, || load(&resolved.config))?;
    let (catalog, _) = mcp::offered(&resolved.config).await?;
    if args.json {
        findings.look_for_tools(&catalog);
    } else {
        let before = findings.errors.len();
        findings.look_for_tools(&mcp::without_reasons(&catalog));
        if findings.errors.len() > before {
            findings.not_connected = mcp::not_connected(&catalog);
        }
    }
    reported(&args, &findings)
}

/// The findings in these paths; without any, in the agents of the configuration.
fn looked_at(paths: &[PathBuf], configured: impl FnOnce() -> anyhow::Result<app::Loaded>) -> anyhow::Result<Findings> {
    let mut findings = Findings::default();
    if paths.is_empty() {
        findings.add(configured()?, None);
    }
    paths.iter().for_each(|path| look_at(path, &mut findings));
    Ok(findings)
}

fn reported(args: &Args, findings: &Findings) -> anyhow::Result<Exit> {
    if args.json {
        let agents: Vec<_> = findings.agents.iter().map(|(_, name)| name).collect();
        output::json(&json!({
            "files": findings.files.len(), "agents": agents, "errors": findings.errors, "warnings": findings.warnings,
        }))?;
    } else {
        output::line(&text(findings))?;
    }
    Ok(if findings.errors.is_empty() {
        Exit::Done
    } else {
        Exit::Invalid
    })
}

fn look_at(path: &Path, findings: &mut Findings) {
    let is_file = !path.is_dir();
    if !path.exists() {
        return findings.place_is_invalid(path, "nothing".to_owned(), "an existing directory or file".to_owned());
    }
    if is_file && Form::of_path(path).is_none() {
        let allowed = format!("a name that ends in one of {}", Form::ENDINGS);
        return findings.place_is_invalid(path, "a file of another kind".to_owned(), allowed);
    }
    let (directory, file) = match is_file {
        true => (path.parent().unwrap_or(Path::new("")), path.file_name()),
        false => (path, None),
    };
    match app::agents_in(directory, file.map(|_| path)) {
        // The path as the directory's list names it: `agents//x.md` is the file `agents/x.md`.
        Ok(loaded) => {
            let listed = file.map(|file| directory.join(file).display().to_string());
            findings.add(loaded, listed.as_deref());
        }
        Err(error) => {
            let found = format!("a directory that cannot be listed, or a file in it: {error}");
            findings.place_is_invalid(path, found, "a directory that gavel can list".to_owned());
        }
    }
}

fn text(findings: &Findings) -> String {
    let mut lines: Vec<_> = findings.errors.iter().map(render_error).collect();
    lines.extend(
        findings
            .warnings
            .iter()
            .map(|warning| format!("warning: {}", render_error(warning))),
    );
    lines.extend(findings.empty.iter().map(|place| {
        format!(
            "warning: {place}: no definition was found; definition files end in {}",
            Form::ENDINGS
        )
    }));
    if !lines.is_empty() {
        lines.push(String::new());
    }
    if !findings.not_connected.is_empty() {
        lines.push(output::printable(&findings.not_connected));
    }
    let mut summary = vec![
        count(findings.files.len(), "file"),
        format!("{} valid", count(findings.agents.len(), "agent")),
        count(findings.errors.len(), "error"),
    ];
    if !findings.warnings.is_empty() {
        summary.push(count(findings.warnings.len(), "warning"));
    }
    lines.push(summary.join(", "));
    lines.join("\n")
}
