//! `gavel config new-key`: a fresh API key for a service. gavel keeps only its SHA-256.

use anyhow::anyhow;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::exit::Exit;
use super::output;
use crate::config::KNOWN_ROLES;
use crate::domain::ids::{TenantId, UserId};

/// Random bytes of a key: nobody guesses 256 bits, so its plain SHA-256 may be kept.
const BYTES: usize = 32;

/// Options of `gavel config new-key`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The service, as logs and records call it
    #[arg(long, value_parser = name)]
    name: String,
    /// Whose records it sees and writes
    #[arg(long, default_value = "default", value_parser = tenant)]
    tenant: String,
    /// The one user who gets it, and acts for themselves alone; absent: a service, which may act for any user
    #[arg(long, value_parser = user)]
    user: Option<String>,
    /// What it may do beside asking (repeatable)
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
    output::note("The key, shown this once (standard output):");
    output::line(&key)?;
    output::note("\nIts entry for gavel.toml, or for the environment; neither is secret:\n");
    output::line(&entry(args, &key))?;
    output::note("\nThe service sends it as `Authorization: Bearer KEY`. Keys count with auth.mode = \"api_key\".");
    Ok(Exit::Done)
}

fn fresh_key() -> anyhow::Result<String> {
    let mut bytes = [0; BYTES];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random
        .fill(&mut bytes)
        .map_err(|_| anyhow!("the system gives no random bytes"))?;
    Ok(format!("gavel_{}", BASE64_URL_SAFE_NO_PAD.encode(bytes)))
}

/// JSON's texts and lists of texts are TOML's as well. What goes into the environment stands in a comment.
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
        // A quote ends a quoted word of the shell: end it, add one, begin again.
        entry.to_string().replace('\'', r"'\''"),
    )
}
