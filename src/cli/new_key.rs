//! `gavel config new-key`: a fresh API key for a service. gavel keeps only its SHA-256.

use secrecy::ExposeSecret;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::app::fresh_key;
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::config::KNOWN_ROLES;
use crate::domain::ids::{TenantId, UserId};

/// Options of `gavel config new-key`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The service's name in logs and records
    #[arg(long, value_parser = name)]
    name: String,
    /// The tenant whose records it reads and writes
    #[arg(long, default_value = "default", value_parser = tenant)]
    tenant: String,
    /// The one user who may use it, only for themselves; without it: a service, which may act for any user
    #[arg(long, value_parser = user)]
    user: Option<String>,
    /// A role beyond requesting decisions (repeatable)
    #[arg(long = "role", value_name = "ROLE", value_parser = clap::builder::PossibleValuesParser::new(KNOWN_ROLES))]
    roles: Vec<String>,
}

fn name(text: &str) -> Result<String, String> {
    let fits = !text.trim().is_empty() && text.len() <= 128 && !text.chars().any(char::is_control);
    if fits {
        Ok(text.trim().to_owned())
    } else {
        Err("give 1 to 128 characters".to_owned())
    }
}

fn tenant(text: &str) -> Result<String, String> {
    TenantId::parse(text)
        .map(|tenant| tenant.to_string())
        .map_err(|error| error.to_string())
}

fn user(text: &str) -> Result<String, String> {
    UserId::parse(text)
        .map(|user| user.to_string())
        .map_err(|error| error.to_string())
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
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
fn entry(args: &Args, key: &str) -> String {
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
