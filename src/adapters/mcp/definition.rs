//! Converts a tool definition of a server to a [`Tool`], or to the reason why it is left out.
//!
//! Every tool is read separately, so that an invalid one does not affect the rest. A missing annotation means side
//! effect and not idempotent. Annotations count only if `trustHints` is true, and `gavel.tools` of `mcp.json` overrides
//! both.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::config::{Identity, ServerConfig, ToolSettings};
use super::log;
use super::slips::{self, Slip};
use super::source::Source;
use crate::domain::canonical;
use crate::domain::model_schema::translate;
use crate::domain::schema::{JsonSchema, SchemaError};
use crate::domain::text::{capped, is_visible, visible};
use crate::domain::tool::{Idempotency, Tool};
use crate::ports::tools::LeftOut;

/// Maximum tools per server. Gemini accepts 512 functions in a request (WIRE.md section 2).
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
    let slips = slips::repair(&mut schema);
    let schema = &schema;
    let costly = |error: SchemaError| format!("its input schema costs too much to check by: {error}");
    // Checked before compilation, because compiling patterns is what takes time.
    *patterns = patterns.saturating_add(JsonSchema::estimate(schema).map_err(costly)?);
    if *patterns > MAX_PATTERNS {
        return Err(format!(
            "the schemas of the server's tools have more than {MAX_PATTERNS} bytes of patterns, those of this one among them"
        ));
    }
    let digest = digest(definition);
    if let Some(same) = known.iter().find(|tool| &*tool.name == name && *tool.digest == *digest) {
        return Ok(same.clone());
    }
    tell(source, name, "inputSchema", &slips);
    let original = bounded(schema, "input")?;
    let output_schema = match definition.get("outputSchema") {
        None | Some(Value::Null) => None,
        Some(schema) => {
            let mut schema = schema.clone();
            tell(source, name, "outputSchema", &slips::repair(&mut schema));
            let raw = bounded(&schema, "output")?;
            JsonSchema::estimate(&schema)
                .map_err(|error| format!("its output schema costs too much to check by: {error}"))?;
            Some(raw)
        }
    };
    let identity_argument = match &server.gavel.identity {
        Identity::Argument(argument) => Some(argument.clone()),
        Identity::None | Identity::Token => None,
    };
    let input = JsonSchema::compile(original).map_err(|error| match error {
        SchemaError::Invalid(_) => format!("its input schema is not valid: {error}"),
        SchemaError::TooCostly { .. } => costly(error),
    })?;
    let shown = translate(schema, identity_argument.as_deref())?;
    let settings = server.gavel.tools.get(name).cloned().unwrap_or_default();
    tell_unknown(source, name, schema, &settings);
    let hints = Hints::of(definition, server.gavel.trust_hints);
    Ok(Arc::new(Tool {
        server: server.name.clone(),
        name: Arc::from(name),
        description: capped(&visible(description(definition)), MAX_DESCRIPTION).into_owned(),
        input,
        model_schema: raw(&shown),
        output_schema,
        side_effect: side_effect(&settings, &hints),
        idempotency: settings.idempotency.unwrap_or(hints.idempotency),
        approval: settings.approval,
        timeout: settings.timeout.unwrap_or(server.timeout),
        identity_argument,
        tenant_users: server.gavel.tells_tenants(),
        recipients: settings.recipients,
        free_arguments: settings.free_arguments,
        single_line: settings.single_line,
        times: settings.times,
        preflight: settings.preflight,
        digest: Arc::from(digest),
    }))
}

fn side_effect(settings: &ToolSettings, hints: &Hints) -> bool {
    settings.side_effect.unwrap_or(!hints.read_only)
}

/// Where a server declares that its tool supports gavel's idempotency key.
const KEYED: &str = "/_meta/gavel~1idempotency";

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
    idempotency: Idempotency,
}

impl Hints {
    fn of(definition: &Value, trusted: bool) -> Self {
        let hint = |name: &str| trusted && definition.pointer(&format!("/annotations/{name}")) == Some(&json!(true));
        let key = trusted && definition.pointer(KEYED) == Some(&json!("key"));
        Self {
            read_only: hint("readOnlyHint"),
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
fn tell(source: &Source, tool: &str, schema: &str, slips: &[Slip]) {
    for slip in slips {
        let place = line(source, &format!("/{schema}{}", slip.pointer), MAX_REASON);
        let what = &slip.message;
        log::line!(
            source.log,
            warn,
            "schema repaired",
            tool,
            place,
            "a part of the tool's schema {what}"
        );
    }
}

/// Logs the paths of a tool's settings whose argument the tool does not declare, for an operator.
fn tell_unknown(source: &Source, tool: &str, schema: &Value, settings: &ToolSettings) {
    let Some(declared) = schema.get("properties").and_then(Value::as_object) else {
        return;
    };
    let keys = [
        ("recipients", &settings.recipients),
        ("freeArguments", &settings.free_arguments),
        ("singleLine", &settings.single_line),
    ];
    for (key, paths) in keys {
        for path in paths.iter().filter(|path| !declared.contains_key(path.argument())) {
            let path = path.to_string();
            log::line!(
                source.log,
                warn,
                "unknown argument in mcp.json",
                tool,
                path,
                "{key} names an argument that the tool does not declare"
            );
        }
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

/// The digests of the listed tools by name. A name may occur twice; [`read`] uses the first.
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
    let hash = Sha256::digest(canonical::to_raw(&covered).get().as_bytes());
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::adapters::mcp::answers;
    use crate::adapters::mcp::config::McpConfig;

    fn server(gavel: &str) -> ServerConfig {
        let text =
            format!(r#"{{"mcpServers": {{"s": {{"command": "x", "excludeTools": ["hidden"], "gavel": {gavel}}}}}}}"#);
        McpConfig::from_json(&text, &|_| None).unwrap().servers.remove(0)
    }

    fn read(server: &ServerConfig, list: &[Value], known: &[Arc<Tool>]) -> Offer {
        super::read(server, &Source::new(server, &answers::budget()), list, known)
    }

    fn plain(name: &str) -> Value {
        json!({"name": name, "inputSchema": {"type": "object", "properties": {"user_id": {"type": "string"}}}})
    }

    #[test]
    fn a_bad_tool_never_takes_the_rest_down() {
        let list = [
            plain("b"),
            json!({"name": "no_schema"}),
            json!(7),
            json!({"name": "", "inputSchema": {}}),
            json!({"name": "two words", "inputSchema": {"type": "object"}}),
            json!({"name": "bad", "inputSchema": {"type": "object", "properties": {"a": {"$ref": "http://x/y"}}}}),
            json!({"name": "none", "inputSchema": {"type": "object", "properties": {"a": {"type": "strange"}}}}),
            plain("hidden"),
            plain("b"),
            plain("a"),
        ];
        let offer = read(&server("{}"), &list, &[]);
        let names: Vec<_> = offer.tools.iter().map(|tool| &*tool.name).collect();
        assert_eq!(names, ["a", "b"]);
        let left: Vec<_> = offer.left_out.iter().map(|left| left.tool.as_str()).collect();
        assert_eq!(left, ["no_schema", "#2", "", "two words", "bad", "none", "b"]);
        assert!(offer.left_out.iter().all(|left| !left.reason.is_empty()));
    }

    /// Promise 5: the report about an endless list has a bounded size.
    #[test]
    fn a_list_without_end_is_told_of_in_few_words() {
        let list: Vec<_> = (0..20_000).map(|n| plain(&format!("t{n}"))).collect();
        let offer = read(&server("{}"), &list, &[]);
        assert_eq!(offer.tools.len(), MAX_TOOLS);
        assert_eq!(offer.left_out.len(), MAX_LEFT_OUT + 2);
        assert_eq!(offer.left_out[0].reason, "the server lists more than 512 tools");
        let last: Vec<_> = offer.left_out[MAX_LEFT_OUT..]
            .iter()
            .map(|left| left.reason.as_str())
            .collect();
        let counted = MAX_LISTED - MAX_TOOLS - MAX_LEFT_OUT;
        assert!(last[0].starts_with(&format!("{counted} more tools")), "{last:?}");
        assert!(last[1].contains("more than 1024 tools"), "{last:?}");
    }

    #[test]
    fn a_reason_quotes_the_server_briefly_and_without_what_steers_a_terminal() {
        let evil = format!("\u{1b}[2J\n\t\u{202e}{}", "x".repeat(400_000));
        for schema in [
            json!({"type": evil}),
            json!({"type": "object", "properties": {"a": {"$ref": evil}}}),
            json!({"type": "object", "properties": {"a": evil}}),
            json!({"type": "object", "properties": {"a": {"minimum": evil}}}),
        ] {
            let offer = read(&server("{}"), &[json!({"name": "t", "inputSchema": schema})], &[]);
            let reason = &offer.left_out[0].reason;
            assert!(reason.len() <= MAX_REASON && is_visible(reason), "{reason:?}");
            assert!(!reason.contains(['\n', '\t']), "{reason:?}");
        }
    }

    #[test]
    fn hints_count_only_where_they_are_trusted_and_settings_override_them() {
        let mut tool = plain("t");
        tool["annotations"] = json!({"readOnlyHint": true, "idempotentHint": true});
        let of = |gavel: &str, tool: &Value| read(&server(gavel), std::slice::from_ref(tool), &[]).tools.remove(0);
        let untrusted = of("{}", &tool);
        assert!(untrusted.side_effect);
        assert_eq!(untrusted.idempotency, Idempotency::None);
        let trusted = of(r#"{"trustHints": true}"#, &tool);
        assert!(!trusted.side_effect);
        assert_eq!(trusted.idempotency, Idempotency::Natural);
        tool["_meta"] = json!({"gavel/idempotency": "key"});
        assert_eq!(of(r#"{"trustHints": true}"#, &tool).idempotency, Idempotency::Key);
        let set = of(
            r#"{"trustHints": true, "tools": {"t": {"sideEffect": true, "idempotency": "none", "timeoutMs": 5}}}"#,
            &tool,
        );
        assert!(set.side_effect);
        assert_eq!(set.idempotency, Idempotency::None);
        assert_eq!(set.timeout.as_millis(), 5);
    }

    #[test]
    fn the_identity_argument_is_hidden_and_must_exist() {
        let with = r#"{"identity": {"argument": "user_id"}}"#;
        let tool = read(&server(with), &[plain("t")], &[]).tools.remove(0);
        assert_eq!(tool.identity_argument.as_deref(), Some("user_id"));
        assert!(!tool.model_schema.get().contains("user_id"));
        assert!(tool.input.original().get().contains("user_id"));
        let offer = read(&server(r#"{"identity": {"argument": "actor"}}"#), &[plain("t")], &[]);
        assert!(offer.tools.is_empty());
        assert!(offer.left_out[0].reason.contains("`actor`"));
    }

    #[test]
    fn the_digest_covers_what_counts_and_nothing_else() {
        let tool = plain("t");
        let same = digest(&tool);
        assert_eq!(same.len(), 64);
        let mut icon = tool.clone();
        icon["icons"] = json!([]);
        icon["_meta"] = json!({"x": 1});
        assert_eq!(digest(&icon), same);
        let mut described = tool.clone();
        described["description"] = json!("d");
        let mut titled = described.clone();
        titled["title"] = json!("t");
        assert_eq!(
            digest(&titled),
            digest(&described),
            "a title next to a description is ignored"
        );
        for (key, value) in [
            ("description", json!("d")),
            ("inputSchema", json!({"type": "object"})),
            ("outputSchema", json!({"type": "object"})),
            ("annotations", json!({"readOnlyHint": true})),
            ("name", json!("u")),
            // The title replaces a missing description, and the key decides whether a call is sent twice.
            ("title", json!("d")),
            ("_meta", json!({"gavel/idempotency": "key"})),
        ] {
            let mut changed = tool.clone();
            changed[key] = value;
            assert_ne!(digest(&changed), same, "{key}");
        }
    }

    #[test]
    fn an_unchanged_tool_stays_the_same_value() {
        let server = server("{}");
        let first = read(&server, &[plain("t")], &[]);
        let second = read(&server, &[plain("t"), plain("u")], &first.tools);
        assert!(Arc::ptr_eq(&first.tools[0], &second.tools[0]));
    }
}
