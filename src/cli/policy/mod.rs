//! `gavel policy`: what the policy gate decides, before a model's call reaches it.

mod simulate;

use std::sync::Arc;

use anyhow::bail;
use secrecy::ExposeSecret;
use serde_json::{Map, Value, json};

use crate::adapters::mcp::{ServerState, ServerStatus};
use crate::adapters::store::ReadOnly;
use crate::api::approvals;
use crate::cli::exit::{Exit, Usage};
use crate::cli::list::table;
use crate::cli::{agents, gavel, lines, mcp, output};
use crate::config::{Config, Resolved};
use crate::domain::action::Details;
use crate::domain::address::Recipients;
use crate::domain::canonical;
use crate::domain::definition::{Agents, Constitution};
use crate::domain::ids::{TenantId, UserId};
use crate::domain::journal::{PolicyDecision, Proposed, Target};
use crate::domain::policy::{AGENT, CHAT, DecidedBy, Effect, Grant, Known, Policy, SURFACES, THREAD};
use crate::domain::tool::Tool;
use crate::engine::gate::{Answer, Attempt, Decision, Facts, decide, results};
use crate::ports::clock::{Clock, SystemClock};
use crate::ports::records::ListQuery;
use crate::ports::tools::Catalog;
use crate::{app, surfaces};

/// The commands of `gavel policy`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Check one call: the answer, what decided it, and the result of every check
    Check(Check),
    /// Run the tests in the policy file
    Test(Test),
    /// Show what the policy would decide for past calls, and how that differs from what happened
    Simulate(simulate::Args),
}

pub(super) async fn run(command: Command, resolved: Resolved) -> anyhow::Result<Exit> {
    match command {
        Command::Check(args) => check(&args, &resolved.config).await,
        Command::Test(args) => test(&args, &resolved.config),
        Command::Simulate(args) => simulate::run(&args, &resolved.config).await,
    }
}

/// Commands about the file require one.
fn needs_file(config: &Config) -> Result<(), Usage> {
    match config.policy.file {
        Some(_) => Ok(()),
        None => Err(Usage(
            "there is no policy file; set --policy PATH, GAVEL_POLICY or policy.file".to_owned(),
        )),
    }
}

/// A sentence for each name in a rule that matches no tool of a connected server, and none of these agents.
pub(super) fn unknown_names(
    policy: &Policy,
    catalog: &Catalog,
    servers: &[ServerStatus],
    agents: &Agents,
) -> Vec<String> {
    policy.unknown_names(&Known {
        tools: catalog.tools.iter().map(|tool| (&*tool.server, &*tool.name)).collect(),
        down: servers
            .iter()
            .filter(|server| server.state != ServerState::Up)
            .map(|server| &*server.name)
            .collect(),
        agents: agents.keys().map(String::as_str).collect(),
    })
}

/// When definitions require approval, and which tools they offer to the model.
struct Modes {
    chat: Constitution,
    /// The agent that answers in threads.
    in_threads: String,
    agents: app::Loaded,
}

impl Modes {
    fn read(config: &Config) -> anyhow::Result<Self> {
        Ok(Self {
            chat: app::constitution(config)?,
            in_threads: config.runs.threads.agent.clone(),
            agents: super::agents::load(config)?,
        })
    }

    fn has(&self, agent: &str) -> bool {
        self.agents.checked.agents.contains_key(agent)
    }

    /// What the gate knows about a call, except the grants. An agent that is not among the files has the default mode.
    fn facts(
        &self,
        policy: &Arc<Policy>,
        tenant: &TenantId,
        user: &UserId,
        surface: &str,
        agent: Option<&str>,
    ) -> Facts {
        let of = agent.and_then(|agent| self.agents.checked.agents.get(agent));
        Facts {
            agent: agent.map(Arc::from),
            approval: match surface {
                CHAT => self.chat.definition.approval,
                _ => of.map(|agent| agent.definition.approval).unwrap_or_default(),
            },
            floor: surfaces::floor(surface),
            now_us: SystemClock.now_us(),
            ..Facts::new(tenant.clone(), user.clone(), surface, Arc::clone(policy))
        }
    }

    /// The tools that may be called on the surface: a name for the owner, and the allowlist; `None` if the agent
    /// is unknown.
    fn offers<'a>(&'a self, surface: &str, agent: Option<&'a str>) -> Option<(&'a str, &'a [String])> {
        if agent.is_none() && surface == CHAT {
            return Some(("the constitution", &self.chat.definition.tools));
        }
        let agent = self.agents.checked.agents.get(agent?)?;
        Some((&agent.definition.name, &agent.definition.tools))
    }
}

/// Options of `gavel policy check`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = CHECK_EXAMPLES)]
pub(super) struct Check {
    /// The tool: its name, or server__tool if several servers have it
    #[arg(long, value_name = "NAME")]
    tool: String,
    /// A JSON object, @FILE with one, or - for standard input
    #[arg(long, default_value = "{}", value_parser = lines::object, value_name = "JSON")]
    arguments: Map<String, Value>,
    /// The acting user
    #[arg(long, default_value = "local", value_parser = gavel::user, value_name = "NAME")]
    user: UserId,
    /// The tenant whose grants apply
    #[arg(long, default_value = "default", value_parser = gavel::tenant, value_name = "NAME")]
    tenant: TenantId,
    /// The agent whose run makes the call [default: in threads, the agent that answers there]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// The surface of the call [default: agent with --agent, else chat]
    #[arg(long, value_parser = SURFACES, value_name = "NAME")]
    surface: Option<String>,
    /// As JSON: {answer, surface, by, reason, recipients, warnings, checks, arguments}
    #[arg(long)]
    json: bool,
}

const CHECK_EXAMPLES: &str = "\
No tool is called. The command gets the tools from the MCP servers and checks the call like a model's call. The \
checks are: the agent's list of tools, the tool's schema, recipients and times, the policy file of this \
configuration, and the user's grants.

Examples:
  gavel policy check --tool add_task --arguments '{\"description\": \"call mom\"}'
  gavel policy check --policy policy.yaml --tool gmail_send --arguments @mail.json --surface thread --user ann
  gavel policy check --tool delete_task --json | jq .checks

Exit status: 0 allowed, 6 approval required, 8 denied or rejected, 1 failed, 2 invalid usage or configuration.";

async fn check(args: &Check, config: &Config) -> anyhow::Result<Exit> {
    let arguments = canonical::to_raw(&Value::Object(args.arguments.clone()));
    let policy = app::policy(config)?;
    let modes = Modes::read(config)?;
    if let Some(agent) = args.agent.as_deref().filter(|agent| !modes.has(agent)) {
        let known: Vec<_> = modes.agents.checked.agents.keys().map(String::as_str).collect();
        let others = agents::others(agent, &known);
        return Err(Usage(format!("this configuration has no agent {agent:?}{others}")).into());
    }
    let (catalog, servers) = mcp::offered(config).await?;
    for unknown in unknown_names(&policy, &catalog, &servers, &modes.agents.checked.agents) {
        output::note(&unknown);
    }
    let tool = find(&catalog, &args.tool)?;
    let grants = match tool.settings.recipients.is_empty() {
        true => Vec::new(),
        false => match grants(args, config, tool).await {
            Ok(grants) => grants,
            Err(error) => {
                output::note(&format!("grants are ignored: {error:#}"));
                Vec::new()
            }
        },
    };
    let decided = |surface: &str, agent: Option<&str>| {
        let mut call = Proposed::of(tool, arguments.clone());
        // An agent created through the API is unknown here, and so are its tools.
        let not_granted = modes.offers(surface, agent).filter(|(_, granted)| {
            let is_it = |name: &String| find(&catalog, name).is_ok_and(|granted| Arc::ptr_eq(granted, tool));
            !granted.iter().any(is_it)
        });
        if not_granted.is_some() {
            call.target = Target::Unknown;
        }
        // `can_wait`: this shows the gate's decision; a note says if the surface cannot request approval.
        let facts = Facts {
            grants: grants.clone(),
            ..modes.facts(&policy, &args.tenant, &args.user, surface, agent)
        };
        let mut decision = decide(&call, &facts, None, Attempt::First);
        if let (Some((whose, _)), PolicyDecision::Refuse { message, .. }) = (not_granted, &mut decision.outcome) {
            *message = format!("{whose} does not list {}", tool.qualified_name());
        }
        decision
    };
    let in_threads = Some(modes.in_threads.as_str());
    let (surface, agent) = match (args.surface.as_deref(), args.agent.as_deref()) {
        (None, None) => (CHAT, None),
        (None, agent) => (AGENT, agent),
        (Some(THREAD), None) => (THREAD, in_threads),
        (Some(surface), agent) => (surface, agent),
    };
    let decision = decided(surface, agent);
    let exit = print(args, &decision, &policy, surface)?;
    if args.surface.is_none() && args.agent.is_none() {
        let there = word(&decided(THREAD, in_threads));
        if there != word(&decision) {
            output::note(&format!(
                "this is the answer for the chat surface; in a thread it is {there} (--surface thread shows why)"
            ));
        }
    }
    Ok(exit)
}

/// The decision as one word.
fn word(decision: &Decision) -> &'static str {
    match (&decision.answer, &decision.outcome) {
        (None, PolicyDecision::Refuse { code, .. }) => code.as_str(),
        _ => decision.effect().as_str(),
    }
}

/// The user's grants for the tool.
async fn grants(args: &Check, config: &Config, tool: &Tool) -> anyhow::Result<Vec<Grant>> {
    let record = ReadOnly::open(config.database_url.expose_secret()).await?;
    let mut query = ListQuery {
        page_size: 1000,
        user: Some(args.user.clone()),
        ..ListQuery::default()
    };
    let mut grants = Vec::new();
    let read = loop {
        match record.grants(&args.tenant, &query).await {
            Err(error) => break Err(error),
            Ok(page) => {
                grants.extend(page.items.into_iter().filter_map(approvals::Grant::to_policy));
                match page.next_page_token {
                    None => break Ok(()),
                    next => query.page_token = next,
                }
            }
        }
    };
    record.close().await;
    read?;
    grants.retain(|grant| *grant.server == *tool.server && *grant.tool == *tool.name);
    Ok(grants)
}

fn find<'a>(catalog: &'a Catalog, name: &str) -> anyhow::Result<&'a Arc<Tool>> {
    let found: Vec<_> = catalog.tools.iter().filter(|tool| tool.is_called(name)).collect();
    match found.as_slice() {
        [tool] => Ok(tool),
        [] => {
            let names: Vec<_> = catalog.tools.iter().map(|tool| &*tool.name).collect();
            let away = catalog.down.iter();
            let away: String = away
                .map(|(name, why)| format!("; {name} offers nothing: {why}"))
                .collect();
            bail!("no server offers {name:?}; offered are {}{away}", names.join(", "))
        }
        several => {
            let names: Vec<_> = several.iter().map(|tool| tool.qualified_name()).collect();
            bail!("several servers offer {name:?}; give one of {}", names.join(", "))
        }
    }
}

fn print(args: &Check, decision: &Decision, policy: &Policy, surface: &str) -> anyhow::Result<Exit> {
    let Some(answer) = &decision.answer else {
        let message = match &decision.outcome {
            PolicyDecision::Refuse { message, .. } => message.as_str(),
            PolicyDecision::Allow { .. } | PolicyDecision::RequireApproval { .. } => "",
        };
        match args.json {
            true => output::json(&json!({"answer": word(decision), "surface": surface, "reason": message}))?,
            false => output::line(&format!("{}, without an approval request: {message}", word(decision)))?,
        }
        return Ok(Exit::Denied);
    };
    let details = &decision.details;
    if args.json {
        output::json(&json!({
            "answer": answer.effect, "surface": surface, "by": answer.by, "reason": answer.reason,
            "recipients": details.recipients.as_ref().map(Recipients::all), "warnings": details.warnings,
            "checks": answer.checks, "arguments": decision.arguments,
        }))?;
    } else {
        output::line(&check_text(answer, details, policy))?;
        if surface == CHAT && answer.effect == Effect::RequireApproval {
            output::note("the chat surface cannot request approval, so the call is denied there");
        }
    }
    Ok(match answer.effect {
        Effect::Allow => Exit::Done,
        Effect::RequireApproval => Exit::NeedsApproval,
        Effect::Deny => Exit::Denied,
    })
}

fn check_text(answer: &Answer, details: &Details, policy: &Policy) -> String {
    let by: Vec<_> = answer.by.iter().map(ToString::to_string).collect();
    let mut text = answer.effect.as_str().to_owned();
    if !by.is_empty() {
        text.push_str(&format!(", decided by {}", by.join(", ")));
    }
    if !answer.reason.is_empty() {
        text.push_str(&format!("\n  {}", answer.reason));
    }
    if let Some(recipients) = &details.recipients {
        let all: Vec<_> = recipients.all().into_iter().collect();
        text.push_str(&format!(
            "\n  reaches {}",
            if all.is_empty() {
                "no recipients".to_owned()
            } else {
                all.join(", ")
            }
        ));
    }
    for warning in &details.warnings {
        text.push_str(&format!("\n  warning: {warning}"));
    }
    let mut rows: Vec<Vec<String>> = answer
        .checks
        .iter()
        .map(|check| {
            vec![
                check.by.to_string(),
                check.says.as_str().to_owned(),
                check.reason.clone(),
            ]
        })
        .collect();
    for rule in &policy.rules {
        let by = DecidedBy::Rule(Arc::clone(&rule.name));
        if !answer.checks.iter().any(|check| check.by == by) {
            rows.push(vec![by.to_string(), "-".to_owned(), "does not apply".to_owned()]);
        }
    }
    text.push_str("\n\n");
    if rows.is_empty() {
        text.push_str("no check applies to this call");
    } else {
        text.push_str(&table(&["check", "says", "why"], &rows));
    }
    text
}

/// Options of `gavel policy test`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = TEST_EXAMPLES)]
pub(super) struct Test {
    /// Print the tests as JSON, one per line: {name, line, expect, found, passed}
    #[arg(long)]
    json: bool,
}

const TEST_EXAMPLES: &str = "\
Examples:
  gavel policy test --policy policy.yaml
  gavel policy test --json | jq 'select(.passed | not)'

Exit status 0 if all pass, 1 if one fails, 2 if the file is invalid. `gavel serve` runs them too, and \
does not start if one fails.";

fn test(args: &Test, config: &Config) -> anyhow::Result<Exit> {
    needs_file(config)?;
    let policy = Arc::new(app::read_policy(config)?);
    let results = results(&policy, surfaces::floor);
    let failed = results.iter().filter(|result| !result.passed).count();
    if args.json {
        output::json_lines(results.iter().map(|result| {
            json!({
                "name": &*result.case.name, "line": result.case.line, "expect": result.case.expect,
                "rule": result.case.rule.as_deref(), "found": result.found, "passed": result.passed,
            })
        }))?;
    } else {
        for result in &results {
            let (mark, name) = (if result.passed { "ok    " } else { "FAILED" }, &result.case.name);
            let mut line = format!("{mark} {}:{} {name}", policy.file, result.case.line);
            if !result.passed {
                line.push_str(&format!(
                    "\n       expected {}{}, found {}",
                    result.case.expect.as_str(),
                    result
                        .case
                        .rule
                        .as_ref()
                        .map_or_else(String::new, |rule| format!(" by rule {rule}")),
                    result.found
                ));
            }
            output::line(&line)?;
        }
        output::line(&format!(
            "{}, {}, {failed} failed",
            crate::cli::agents::count(policy.rules.len(), "rule"),
            crate::cli::agents::count(results.len(), "test")
        ))?;
    }
    Ok(if failed == 0 { Exit::Done } else { Exit::Failed })
}
