//! `gavel config`: the effective settings, each with the origin of its value. Secrets are masked.

use secrecy::ExposeSecret;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::app::fresh_key;
use crate::cli::exit::Exit;
use crate::cli::list::{Column, table_of};
use crate::cli::{gavel, output};
use crate::config::{Config, Effective, Flags, KNOWN_ROLES, find, reference};
use crate::domain::ids::{TenantId, UserId};

/// Options of `gavel config`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_long_help = EXAMPLES)]
pub(super) struct Args {
    /// Print the settings as JSON, one per line: {key, environment, value, origin}
    #[arg(long, conflicts_with = "reference")]
    json: bool,
    /// All settings, as a Markdown table
    #[arg(long)]
    reference: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

const EXAMPLES: &str = "\
Examples:
  gavel config                                        the effective settings and their origins
  gavel config --json | jq 'select(.origin != \"default\")'
  gavel config new-key --name shop --role analyst     a key for a service";

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Create an API key for a service, and its entry for gavel.toml
    NewKey(NewKey),
}

pub(super) fn run(args: Args, flags: &Flags) -> anyhow::Result<Exit> {
    if let Some(Command::NewKey(args)) = &args.command {
        return new_key(args);
    }
    if args.reference {
        output::line(&reference())?;
        return Ok(Exit::Done);
    }
    let resolved = Config::load(flags)?;
    for warning in &resolved.warnings {
        output::note(&format!("warning: {warning}"));
    }
    if args.json {
        output::json_lines(&resolved.origins)?;
    } else {
        output::line(&table_of(COLUMNS, &resolved.origins))?;
    }
    Ok(Exit::Done)
}

const COLUMNS: &[Column<Effective>] = &[
    ("setting", |effective| effective.key.to_owned()),
    ("value", |effective| {
        let absent = || find(effective.key).map_or("not set", |setting| setting.absent);
        effective.value.clone().unwrap_or_else(|| format!("({})", absent()))
    }),
    ("from", |effective| effective.origin.to_string()),
];

/// Options of `gavel config new-key`.
#[derive(Debug, clap::Args)]
struct NewKey {
    /// The service's name in logs and records
    #[arg(long, value_parser = key_name)]
    name: String,
    /// The tenant whose records it reads and writes
    #[arg(long, default_value = "default", value_parser = gavel::tenant)]
    tenant: TenantId,
    /// The one user who may use it, only for themselves; without it: a service, which may act for any user
    #[arg(long, value_parser = gavel::user)]
    user: Option<UserId>,
    /// A role beyond requesting decisions (repeatable)
    #[arg(long = "role", value_name = "ROLE", value_parser = clap::builder::PossibleValuesParser::new(KNOWN_ROLES))]
    roles: Vec<String>,
}

fn key_name(text: &str) -> Result<String, String> {
    let fits = !text.trim().is_empty() && text.len() <= 128 && !text.chars().any(char::is_control);
    if fits {
        Ok(text.trim().to_owned())
    } else {
        Err("give 1 to 128 characters".to_owned())
    }
}

fn new_key(args: &NewKey) -> anyhow::Result<Exit> {
    let key = fresh_key()?;
    output::note("The key, shown this once:");
    output::line(key.expose_secret())?;
    output::note("\nIts entry for gavel.toml, or for the environment; neither is secret:\n");
    output::line(&entry(args, key.expose_secret()))?;
    let sender = match &args.user {
        Some(user) => format!("{user}, or a program that acts for {user} alone,"),
        None => "The service".to_owned(),
    };
    output::note(&format!(
        "\n{sender} sends it as `Authorization: Bearer KEY`. Keys are used with auth.mode = \"api_key\"."
    ));
    Ok(Exit::Done)
}

/// JSON strings and lists of strings are also valid TOML. A comment holds the form for the environment.
fn entry(args: &NewKey, key: &str) -> String {
    let sha256 = hex::encode(Sha256::digest(key.as_bytes()));
    let mut entry = json!({ "name": args.name, "sha256": sha256, "tenant": args.tenant, "roles": args.roles });
    let mut user = String::new();
    if let Some(name) = &args.user {
        entry["user"] = json!(name);
        user = format!("user = {}\n", entry["user"]);
    }
    format!(
        "[[auth.keys]]\nname = {}\nsha256 = {}\ntenant = {}\nroles = {}\n{user}# GAVEL_AUTH_KEYS='[{}]'\n",
        entry["name"],
        entry["sha256"],
        entry["tenant"],
        entry["roles"],
        // A single quote ends a quoted word of the shell: end it, add one, begin again.
        entry.to_string().replace('\'', r"'\''"),
    )
}
