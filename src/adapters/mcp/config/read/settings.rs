//! What `gavel` says about one server.

use std::collections::BTreeMap;
use std::sync::Arc;

use secrecy::SecretString;
use serde_json::{Map, Value};

use super::super::expand::expand;
use super::super::{Connection, IDENTITY_SECRET, Identity, ServerConfig, Settings};
use super::{Reader, escape};

/// Default maximum of concurrent calls to one server.
const DEFAULT_CONCURRENT: usize = 256;

/// A shorter HS256 secret is weaker than the hash (RFC 7518 section 3.2).
const SECRET_BYTES: usize = 32;

impl Reader<'_> {
    pub(super) fn settings(&mut self, entry: &Map<String, Value>, at: &str) -> Settings {
        let mut settings = Settings {
            identity: Identity::None,
            connection: Connection::Shared,
            tenant_users: None,
            trust_hints: false,
            expose_errors: false,
            max_concurrent: DEFAULT_CONCURRENT,
            pin: false,
            required_env: Vec::new(),
            secrets: Vec::new(),
            tools: BTreeMap::new(),
        };
        let at = &format!("{at}/gavel");
        let gavel = match entry.get("gavel") {
            None => return settings,
            Some(Value::Object(gavel)) => gavel,
            Some(_) => {
                self.invalid(at, "must be an object");
                return settings;
            }
        };
        self.only(
            gavel,
            &[
                "identity",
                "connection",
                "tenantUsers",
                "trustHints",
                "exposeErrors",
                "maxConcurrent",
                "pin",
                "requiredEnv",
                "secrets",
                "tools",
            ],
            at,
        );
        settings.required_env = self.required_env(gavel, at);
        settings.secrets = self.strings(gavel, "secrets", at).unwrap_or_default();
        settings.identity = self.identity(gavel, at);
        settings.connection = match self.string(gavel, "connection", at).as_deref() {
            None | Some("shared") => Connection::Shared,
            Some("per_user") => Connection::PerUser,
            Some(other) => {
                let message = format!("`{other}`; allowed: `shared`, `per_user`");
                self.invalid(&format!("{at}/connection"), message);
                Connection::Shared
            }
        };
        settings.tenant_users = self.bool(gavel, "tenantUsers", at);
        settings.trust_hints = self.bool(gavel, "trustHints", at).unwrap_or(false);
        settings.expose_errors = self.bool(gavel, "exposeErrors", at).unwrap_or(false);
        settings.pin = self.bool(gavel, "pin", at).unwrap_or(false);
        if let Some(value) = gavel.get("maxConcurrent") {
            match value.as_u64() {
                Some(n @ 1..=65_536) => settings.max_concurrent = usize::try_from(n).unwrap_or(DEFAULT_CONCURRENT),
                _ => self.invalid(&format!("{at}/maxConcurrent"), format!("{value}; allowed: 1 to 65536")),
            }
        }
        match gavel.get("tools") {
            None => {}
            Some(Value::Object(tools)) => {
                for (name, value) in tools {
                    let at = format!("{at}/tools/{}", escape(name));
                    if let Some(tool) = self.tool(value, &at) {
                        settings.tools.insert(name.clone(), tool);
                    }
                }
            }
            Some(_) => self.invalid(&format!("{at}/tools"), "must be an object of settings by tool name"),
        }
        settings
    }

    pub(super) fn required_env(&mut self, gavel: &Map<String, Value>, at: &str) -> Vec<Vec<String>> {
        let Some(value) = gavel.get("requiredEnv") else {
            return Vec::new();
        };
        let names = |list: &Value| -> Option<Vec<String>> {
            let names = list.as_array().filter(|names| !names.is_empty())?;
            names.iter().map(|name| name.as_str().map(str::to_owned)).collect()
        };
        let lists = value.as_array().and_then(|lists| lists.iter().map(names).collect());
        lists.unwrap_or_else(|| {
            let message = "must list alternatives, each a list of variables, such as [[\"ID\", \"SECRET\"], [\"KEY\"]]";
            self.invalid(&format!("{at}/requiredEnv"), message);
            Vec::new()
        })
    }

    /// The required variables that are missing both in gavel's environment and in the entry's `env`. If one alternative
    /// is partly set, only its missing variables.
    pub(super) fn lacks(&self, required: &[Vec<String>], entry: &Map<String, Value>) -> Option<String> {
        let in_entry = |name: &str| {
            let text = entry.get("env")?.get(name)?.as_str()?;
            // Unset variables in it are reported where the value is used.
            expand(text, self.env).ok()
        };
        let given = |name: &str| {
            let mut values = (self.env)(name).into_iter().chain(in_entry(name));
            values.any(|value| !value.is_empty())
        };
        let is_set = |name: &&String| given(name) || given(&format!("{name}_FILE"));
        let missing: Vec<Vec<&str>> = required
            .iter()
            .map(|all| all.iter().filter(|name| !is_set(name)).map(String::as_str).collect())
            .collect();
        if missing.is_empty() || missing.iter().any(Vec::is_empty) {
            return None;
        }
        let begun = required
            .iter()
            .zip(&missing)
            .find(|(all, missing)| missing.len() < all.len());
        if let Some((all, missing)) = begun {
            let set: Vec<_> = all.iter().filter(is_set).map(String::as_str).collect();
            return Some(format!(
                "needs {} in addition to {}",
                missing.join(" and "),
                set.join(" and ")
            ));
        }
        if let [one] = &missing[..]
            && let [name] = one[..]
        {
            return Some(format!("needs {name}, which is not set"));
        }
        let lists: Vec<_> = missing.iter().map(|missing| missing.join(" and ")).collect();
        Some(format!("needs {}; none of them is set", lists.join(", or ")))
    }

    fn identity(&mut self, gavel: &Map<String, Value>, at: &str) -> Identity {
        let argument = |value: &Value| {
            let object = value.as_object().filter(|object| object.len() == 1)?;
            object
                .get("argument")?
                .as_str()
                .filter(|name| !name.is_empty())
                .map(Arc::from)
        };
        match gavel.get("identity") {
            None => Identity::None,
            Some(Value::String(word)) if word == "none" => Identity::None,
            Some(Value::String(word)) if word == "token" => Identity::Token,
            Some(value) => argument(value).map_or_else(
                || {
                    let message = format!("{value}; allowed: \"none\", \"token\", {{\"argument\": \"NAME\"}}");
                    self.invalid(&format!("{at}/identity"), message);
                    Identity::None
                },
                Identity::Argument,
            ),
        }
    }

    pub(super) fn identity_secret(&mut self, servers: &[ServerConfig]) -> Option<SecretString> {
        let asking = servers
            .iter()
            .find(|server| server.off.is_none() && server.gavel.identity == Identity::Token)?;
        let at = format!("{}/{}/gavel/identity", self.base, escape(&asking.name));
        match (self.env)(IDENTITY_SECRET) {
            Some(secret) if secret.len() >= SECRET_BYTES => Some(SecretString::from(secret)),
            Some(_) => {
                self.invalid(
                    &at,
                    format!("\"token\" needs a {IDENTITY_SECRET} of at least {SECRET_BYTES} bytes"),
                );
                None
            }
            None => {
                self.invalid(&at, format!("\"token\" needs {IDENTITY_SECRET}, which is not set"));
                None
            }
        }
    }
}
