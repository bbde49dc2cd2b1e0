//! Converts a tool definition of a server to a [`Tool`], or to the reason why it is left out.
//!
//! Every tool is read separately, so that an invalid one does not affect the rest. A missing annotation means side
//! effect and not idempotent. Annotations count only if `trustHints` is true, and `gavel.tools` of `mcp.json` overrides
//! both. A server can say the same in `_meta["gavel/settings"]`: so a server is as safe as it says, however it is
//! started.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::config::{Identity, ServerConfig, ToolSettings};
use super::log;
use super::source::Source;
use crate::domain::canonical;
use crate::domain::model_schema::translate;
use crate::domain::schema::{JsonSchema, Repair, SchemaError, repair};
use crate::domain::text::{capped, is_visible, visible};
use crate::domain::tool::{Idempotency, Tool};
use crate::ports::tools::LeftOut;

/// Maximum tools per server. Gemini accepts 512 functions in a request.
const MAX_TOOLS: usize = 512;
/// Maximum definitions read per server: some may be left out, and some are excluded.
pub(super) const MAX_LISTED: usize = 2 * MAX_TOOLS;
/// Maximum left-out tools reported by name. The others are counted.
const MAX_LEFT_OUT: usize = 64;
/// Maximum bytes of a reason, which may quote the server.
const MAX_REASON: usize = 512;
/// Maximum name length, as MCP recommends.
const MAX_NAME: usize = 128;
/// Maximum bytes of a description shown to the model.
const MAX_DESCRIPTION: usize = 8 * 1024;
/// Maximum bytes of an input or output schema as sent by the server.
const MAX_SCHEMA: usize = 512 * 1024;

/// Maximum text bytes of all patterns in one server's input schemas.
const MAX_PATTERNS: u64 = 256 * 1024;

/// Maximum nesting levels of a definition. JSON parsers stop at 128, and three levels are around it.
pub(super) const MAX_LEVELS: usize = 120;
/// Replaces everything but the name in a definition that is nested more deeply.
pub(super) const TOO_DEEP: &str = "gavel/tooDeep";

/// A server's tools, parsed.
#[derive(Debug, Default)]
pub(super) struct Offer {
    /// Ordered by name.
    pub(super) tools: Vec<Arc<Tool>>,
    /// The tools that are left out.
    pub(super) left_out: Vec<LeftOut>,
}

/// Parses a list of tools as JSON. A tool that equals one in `known` reuses it.
pub(super) fn read(server: &ServerConfig, source: &Source, list: &[Value], known: &[Arc<Tool>]) -> Offer {
    let mut offer = Offer::default();
    let mut more: usize = 0;
    let mut patterns = 0;
    for (n, definition) in list.iter().take(MAX_LISTED).enumerate() {
        let name = definition.get("name").and_then(Value::as_str);
        let label = name.map_or_else(|| format!("#{n}"), |name| line(source, name, MAX_NAME));
        if name.is_some_and(|name| !server.may_offer(name)) {
            continue;
        }
        let read = if offer.tools.len() >= MAX_TOOLS {
            Err(format!("the server lists more than {MAX_TOOLS} tools"))
        } else if offer.tools.iter().any(|tool| Some(&*tool.name) == name) {
            Err("the server lists this name twice; the first one counts".to_owned())
        } else {
            tool(server, source, definition, known, &mut patterns)
        };
        match read {
            Ok(tool) => offer.tools.push(tool),
            Err(_) if offer.left_out.len() >= MAX_LEFT_OUT => more += 1,
            Err(reason) => offer.left_out.push(left_out(source, label, &reason)),
        }
    }
    if more > 0 {
        let reason = format!("{more} more tools are left out, each for a reason like these");
        offer.left_out.push(left_out(source, "…".to_owned(), &reason));
    }
    if list.len() > MAX_LISTED {
        let reason = format!("the server lists more than {MAX_LISTED} tools; the others are not read");
        offer.left_out.push(left_out(source, "…".to_owned(), &reason));
    }
    offer.tools.sort_by(|a, b| a.name.cmp(&b.name));
    offer
}

/// The tools of a list, as a server with this entry offers them.
#[cfg(any(test, feature = "testing"))]
pub fn tools_of(server: &ServerConfig, list: &[Value]) -> Vec<Arc<Tool>> {
    let offer = read(server, &Source::new(server, &super::source::budget()), list, &[]);
    assert_eq!(offer.left_out, []);
    offer.tools
}

/// The reason is shown to operators and logged, and may contain the server's own text.
fn left_out(source: &Source, tool: String, reason: &str) -> LeftOut {
    LeftOut {
        server: source.name.clone(),
        tool,
        reason: line(source, reason, MAX_REASON),
    }
}

/// A server's text as one line for an operator's screen or log.
fn line(source: &Source, text: &str, bytes: usize) -> String {
    source.words(text, bytes).replace(['\n', '\t'], " ")
}

/// `patterns` counts the bytes of the server's patterns.
fn tool(
    server: &ServerConfig,
    source: &Source,
    definition: &Value,
    known: &[Arc<Tool>],
    patterns: &mut u64,
) -> Result<Arc<Tool>, String> {
    let name = name(definition)?;
    if definition.get(TOO_DEEP).is_some() {
        return Err(format!("its definition nests more than {MAX_LEVELS} levels deep"));
    }
    let mut schema = definition.get("inputSchema").ok_or("it has no `inputSchema`")?.clone();
    let repairs = repair(&mut schema);
    let schema = &schema;
    let invalid = |error: SchemaError| match error {
        SchemaError::Invalid(_) => format!("its input schema is not valid: {error}"),
        SchemaError::TooCostly { .. } => format!("its input schema costs too much to check by: {error}"),
    };
    // Checked before compilation, because compiling patterns is what takes time.
    *patterns = patterns.saturating_add(JsonSchema::estimate(schema).map_err(invalid)?);
    if *patterns > MAX_PATTERNS {
        return Err(format!(
            "the schemas of the server's tools have more than {MAX_PATTERNS} bytes of patterns, those of this one among them"
        ));
    }
    let digest = digest(definition);
    if let Some(same) = known.iter().find(|tool| &*tool.name == name && *tool.digest == *digest) {
        return Ok(same.clone());
    }
    tell(source, name, &repairs);
    let original = bounded(schema, "input")?;
    let output_schema = match definition.get("outputSchema") {
        None | Some(Value::Null) => None,
        Some(schema) => Some(bounded(schema, "output")?),
    };
    let identity_argument = match &server.gavel.identity {
        Identity::Argument(argument) => Some(argument.clone()),
        Identity::None | Identity::Token => None,
    };
    let input = JsonSchema::compile(original).map_err(invalid)?;
    let own = server.gavel.tools.get(name).cloned().unwrap_or_default();
    let by_operator = own.scope.is_some();
    let settings = own.with(said(definition)?.unwrap_or_default(), server.gavel.trust_hints);
    let shown = translate(schema, &unseen(schema, identity_argument.as_deref(), &settings)?)?;
    tell_unknown(source, name, schema, &settings);
    let hints = Hints::of(definition, server.gavel.trust_hints);
    Ok(Arc::new(Tool {
        server: server.name.clone(),
        name: Arc::from(name),
        title: title(definition).map(|title| Arc::from(capped(&visible(title), MAX_TITLE))),
        description: capped(&visible(description(definition)), MAX_DESCRIPTION).into_owned(),
        input,
        model_schema: raw(&shown),
        output_schema,
        side_effect: side_effect(&settings, &hints),
        open_world: hints.open_world,
        idempotency: settings.idempotency.unwrap_or(hints.idempotency),
        timeout: settings.timeout.unwrap_or(server.timeout),
        identity_argument,
        tenant_users: server.gavel.tells_tenants(),
        is_bound: settings.scope.is_some() && (server.gavel.trust_hints || by_operator),
        settings,
        digest: Arc::from(digest),
    }))
}

/// What a server says of its own tool.
///
/// # Errors
/// It cannot be read, so it may restrict the tool in a way that this gavel does not know.
pub fn said(definition: &Value) -> Result<Option<ToolSettings>, String> {
    let said = definition.pointer(SETTINGS).map(ToolSettings::said).transpose();
    said.map_err(|errors| format!("its `_meta[\"gavel/settings\"]` is invalid: {errors}"))
}

/// The arguments that the model does not see. A hidden one is set by the server, so it cannot be required.
fn unseen<'a>(schema: &Value, identity: Option<&'a str>, settings: &'a ToolSettings) -> Result<Vec<&'a str>, String> {
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|entry| entry == name));
    if let Some(name) = settings.hidden.iter().find(|name| is_required(name)) {
        return Err(format!("the hidden argument `{name}` is required by its input schema"));
    }
    let declared = schema.get("properties").and_then(Value::as_object);
    let is_declared = |name: &&str| declared.is_some_and(|declared| declared.contains_key(*name));
    let hidden = settings.hidden.iter().map(AsRef::as_ref).filter(is_declared);
    Ok(identity.into_iter().chain(hidden).collect())
}

fn side_effect(settings: &ToolSettings, hints: &Hints) -> bool {
    settings.side_effect.unwrap_or(!hints.read_only)
}

/// Where a server declares that its tool supports gavel's idempotency key.
const KEYED: &str = "/_meta/gavel~1idempotency";

/// Where a server says what `gavel.tools` of `mcp.json` can say of its tool.
const SETTINGS: &str = "/_meta/gavel~1settings";

/// Most bytes of a title.
const MAX_TITLE: usize = 120;

/// The tool's title for people: its own, or that of its annotations (MCP 2025-11-25, Tools).
fn title(definition: &Value) -> Option<&str> {
    let titles = ["/title", "/annotations/title"].map(|path| definition.pointer(path).and_then(Value::as_str));
    titles
        .into_iter()
        .flatten()
        .map(str::trim)
        .find(|title| !title.is_empty())
}

/// The tool's description, or its title if there is none.
fn description(definition: &Value) -> &str {
    let text = |key: &str| definition.get(key).and_then(Value::as_str);
    let texts = [text("description"), text("title")];
    texts
        .into_iter()
        .flatten()
        .find(|text| !text.is_empty())
        .unwrap_or_default()
}

/// What a trusted server declares about its tool.
struct Hints {
    read_only: bool,
    open_world: bool,
    idempotency: Idempotency,
}

impl Hints {
    fn of(definition: &Value, trusted: bool) -> Self {
        let says = |name: &str, value: bool| {
            trusted && definition.pointer(&format!("/annotations/{name}")) == Some(&json!(value))
        };
        let hint = |name: &str| says(name, true);
        let key = trusted && definition.pointer(KEYED) == Some(&json!("key"));
        Self {
            read_only: hint("readOnlyHint"),
            open_world: !says("openWorldHint", false),
            idempotency: match (key, hint("idempotentHint")) {
                (true, _) => Idempotency::Key,
                (false, true) => Idempotency::Natural,
                (false, false) => Idempotency::None,
            },
        }
    }
}

fn name(definition: &Value) -> Result<&str, String> {
    let name = definition.get("name").and_then(Value::as_str).ok_or("it has no name")?;
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(format!(
            "its name has {} bytes; 1 to {MAX_NAME} are allowed",
            name.len()
        ));
    }
    if !is_visible(name) || name.chars().any(char::is_whitespace) {
        return Err("its name contains white space or invisible characters".to_owned());
    }
    Ok(name)
}

/// Logs the repairs of a tool's schema for an operator.
fn tell(source: &Source, tool: &str, repairs: &[Repair]) {
    for repair in repairs {
        let place = line(source, &format!("/inputSchema{}", repair.pointer), MAX_REASON);
        let what = &repair.message;
        log::line!(source.log, warn, "a part of the tool's schema {what}", tool, place);
    }
}

/// Logs the paths of a tool's settings whose argument the tool does not declare, for an operator.
fn tell_unknown(source: &Source, tool: &str, schema: &Value, settings: &ToolSettings) {
    let Some(declared) = schema.get("properties").and_then(Value::as_object) else {
        return;
    };
    let lists = [
        ("recipients", &settings.recipients),
        ("freeArguments", &settings.free_arguments),
        ("singleLine", &settings.single_line),
    ];
    let paths = lists
        .iter()
        .flat_map(|(key, paths)| paths.iter().map(|path| (*key, path.argument(), path.to_string())));
    let hidden = settings.hidden.iter().map(|name| ("hidden", &**name, name.to_string()));
    let scope = settings.scope.iter().flatten();
    let scope = scope.map(|(path, _)| ("scope", path.argument(), path.to_string()));
    for (key, argument, path) in paths.chain(hidden).chain(scope) {
        if declared.contains_key(argument) {
            continue;
        }
        log::line!(
            source.log,
            warn,
            "{key} names an argument that the tool does not declare",
            tool,
            path
        );
    }
}

fn bounded(schema: &Value, which: &str) -> Result<Box<RawValue>, String> {
    let raw = raw(schema);
    let bytes = raw.get().len();
    if bytes > MAX_SCHEMA {
        return Err(format!(
            "its {which} schema has {bytes} bytes; at most {MAX_SCHEMA} are read"
        ));
    }
    Ok(raw)
}

fn raw(value: &Value) -> Box<RawValue> {
    canonical::to_raw(value)
}

// The digest of a tool definition, by which approvals and pins recognize it.

/// The digests of the listed tools by name. A name may occur twice; [`super::read`] uses the first.
pub(super) fn digests(list: &[Value]) -> HashMap<String, Vec<String>> {
    let mut found: HashMap<String, Vec<String>> = HashMap::new();
    for definition in list.iter().take(MAX_LISTED) {
        if let Ok(name) = name(definition) {
            found.entry(name.to_owned()).or_default().push(digest(definition));
        }
    }
    found
}

/// Hex SHA-256 over the canonical JSON of everything that a model or the policy relies on.
fn digest(definition: &Value) -> String {
    let part = |key: &str| definition.get(key).cloned().unwrap_or(Value::Null);
    let hint = |name: &str| {
        definition
            .pointer(&format!("/annotations/{name}"))
            .cloned()
            .unwrap_or(Value::Null)
    };
    let mut covered = json!({
        "name": part("name"),
        "description": description(definition),
        "inputSchema": part("inputSchema"),
        "outputSchema": part("outputSchema"),
        // The hints that the protocol defines. A server may add others, which gavel ignores.
        "annotations": {
            "title": hint("title"),
            "readOnlyHint": hint("readOnlyHint"),
            "destructiveHint": hint("destructiveHint"),
            "idempotentHint": hint("idempotentHint"),
            "openWorldHint": hint("openWorldHint"),
        },
    });
    if let Some(keyed) = definition.pointer(KEYED) {
        covered["idempotency"] = keyed.clone();
    }
    if let Some(said) = definition.pointer(SETTINGS) {
        covered["settings"] = said.clone();
    }
    let hash = Sha256::digest(canonical::to_raw(&covered).get().as_bytes());
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
