//! The table of all settings: names, defaults, allowed values. All other code reads this table, so a setting that is
//! not here does not exist.

mod setting;

use self::setting::setting;
pub use self::setting::{Secrecy, Setting};

const HOURS: &str = "a number of hours over 0, up to 8760";
const WHOLE_HOURS: &str = "a whole number of hours from 1 to 8760";
const MANY: &str = "a whole number from 1 to 1000000";
const TOKENS: &str = "a whole number from 10000 to 1000000000000";
const LENGTH: &str = "a length of time up to 24h, such as 45s, 15m or 2h";
const SECONDS: &str = "seconds above 0 and up to 3600, such as 2 or 0.5";
const BASE: &str = "scheme, host and port only, such as https://gateway.internal:8443 (the path is appended)";
const SIGNING: &str = "at least 32 bytes (openssl rand -hex 32 makes one)";

/// The key of the configuration file itself, which cannot be set in that file.
pub const CONFIG_FILE: &str = "config";

/// The default model: a current Flash model with no shutdown date.
pub const DEFAULT_MODEL: &str = "gemini-3.8-flash";

/// All settings, in the order they are shown.
pub const SETTINGS: &[Setting] = &[
    setting(
        CONFIG_FILE,
        &["GAVEL_CONFIG"],
        "the path of a TOML file",
        "The configuration file.",
    )
    .flag("--config")
    .absent("gavel.toml, if there is one"),
    setting(
        "listen",
        &["GAVEL_LISTEN"],
        "an address and a port, such as 127.0.0.1:8080, [::1]:8080 or localhost:8080",
        "Where the HTTP API is served; port 0 takes a free one.",
    )
    .flag("--listen")
    .default("127.0.0.1:8080"),
    setting(
        "constitution",
        &["GAVEL_CONSTITUTION"],
        "the path of a Markdown file",
        "System prompt, tool allowlist and limits of the chat surface.",
    )
    .flag("--constitution")
    .absent("built in"),
    setting(
        "agents",
        &["GAVEL_AGENTS"],
        "the path of a directory",
        "Directory of agent definitions.",
    )
    .flag("--agents")
    .absent("agents, if it exists, else built in"),
    setting(
        "mcp_config",
        &["GAVEL_MCP_CONFIG"],
        "the path of an mcp.json file",
        "The MCP servers whose tools are used.",
    )
    .flag("--mcp-config")
    .absent("built in"),
    setting(
        "mcp_pins",
        &["GAVEL_MCP_PINS"],
        "the path of a file, which need not exist",
        "Where the accepted definitions of tools are kept; only written when a server has pin: true.",
    )
    .flag("--mcp-pins")
    .default("gavel-pins.json"),
    setting(
        "policy.file",
        &["GAVEL_POLICY"],
        "the path of a YAML file",
        "Rules for tool calls, with tests of them.",
    )
    .flag("--policy")
    .absent("no rules"),
    setting(
        "database_url",
        &["DATABASE_URL"],
        "sqlite://PATH or postgres://USER:PASSWORD@HOST/DATABASE",
        "Where records are kept; a missing SQLite file is created.",
    )
    .flag("--database")
    .default("sqlite://gavel.db")
    .url(),
    setting(
        "workers",
        &["GAVEL_WORKERS"],
        "a whole number from 1 to 512",
        "HTTP worker threads.",
    )
    .absent("one for each core"),
    setting(
        "max_in_flight",
        &["GAVEL_MAX_IN_FLIGHT"],
        "a whole number from 1 to 1000000",
        "Requests in progress at once in one process; further requests are answered REFUSAL:OVERLOADED. One tenant may \
         use at most seven eighths of them, one user three quarters.",
    )
    .default("1024"),
    setting(
        "drain_seconds",
        &["GAVEL_DRAIN_SECONDS"],
        SECONDS,
        "How long a shutdown waits for work in progress.",
    )
    .default("30"),
    setting(
        "runs.background",
        &["GAVEL_RUNS_BACKGROUND"],
        "a whole number from 1 to 1000000",
        "Background runs of agents in progress at once in one process; further runs wait. One tenant may \
         use at most seven eighths of them, one user three quarters.",
    )
    .default("64"),
    setting(
        "runs.lease_seconds",
        &["GAVEL_RUNS_LEASE_SECONDS"],
        SECONDS,
        "How long a process may go without renewing its leases before another process takes over its runs.",
    )
    .default("10"),
    setting(
        "runs.keep_days",
        &["GAVEL_RUNS_KEEP_DAYS"],
        "a whole number of days from 1 to 36500",
        "How long ended runs and planning sessions are kept, with their journals, actions, lines in threads and plans; decisions are kept forever.",
    )
    .absent("forever"),
    setting(
        "runs.agent",
        &["GAVEL_RUNS_AGENT"],
        "the name of an agent of the project `default` with one input, `query`, and without sub-agents, steps or rounds",
        "The agent that answers in threads (`POST /api/agent/run`).",
    )
    .default("workspace"),
    setting(
        "runs.while_busy",
        &["GAVEL_RUNS_WHILE_BUSY"],
        "refuse or queue",
        "What happens to a message while a run of its thread is in progress: it is refused with 409 and that run, or it \
         waits its turn.",
    )
    .default("refuse"),
    setting(
        "runs.on_reject",
        &["GAVEL_RUNS_ON_REJECT"],
        "continue, complete or fail",
        "What happens to a thread's run when an approver rejects an action: the agent reads the reason and continues, or \
         the run ends as completed or as failed.",
    )
    .default("continue"),
    setting(
        "approvals.expire_hours",
        &["GAVEL_APPROVALS_EXPIRE_HOURS"],
        HOURS,
        "How long an approver may take to approve or reject an action; after that the action is not executed.",
    )
    .default("24"),
    setting(
        "console.session_hours",
        &["GAVEL_CONSOLE_SESSION_HOURS"],
        HOURS,
        "How long a login to the console lasts; a login with a token never lasts longer than the token.",
    )
    .default("8"),
    setting(
        "console.idle_hours",
        &["GAVEL_CONSOLE_IDLE_HOURS"],
        HOURS,
        "How long a login to the console may be idle before it ends.",
    )
    .default("1"),
    setting(
        "planning.repositories",
        &["GAVEL_PLANNING_REPOSITORIES"],
        "a list of OWNER/REPO, with * for any part of a name, and TENANT: before it for one tenant (in the environment \
         separated by commas)",
        "The repositories that calls and planning sessions may use.",
    )
    .absent("none; with auth.mode = none every repository"),
    setting(
        "planning.max_hours",
        &["GAVEL_PLANNING_MAX_HOURS"],
        WHOLE_HOURS,
        "How far ahead the deadline of a planning session may be.",
    )
    .default("168"),
    setting(
        "planning.sessions_per_user",
        &["GAVEL_PLANNING_SESSIONS_PER_USER"],
        MANY,
        "Planning sessions of one user that plan or work at once, and a tenth of those that wait; more are refused with 429.",
    )
    .default("3"),
    setting(
        "planning.sessions",
        &["GAVEL_PLANNING_SESSIONS"],
        MANY,
        "Planning sessions of all users that plan or work at once, and a tenth of those that wait; more are refused with 429.",
    )
    .default("20"),
    setting(
        "planning.confirm_hours",
        &["GAVEL_PLANNING_CONFIRM_HOURS"],
        WHOLE_HOURS,
        "How long a plan waits for its confirmation after its last change; then its session ends.",
    )
    .default("24"),
    setting(
        "planning.templates",
        &["GAVEL_PLANNING_TEMPLATES"],
        "the path of a directory",
        "Directory of templates; a plan.md, refine.md, reason.md, act.md or reflect.md there replaces the built-in one.",
    )
    .absent("built in"),
    setting(
        "planning.branch_prefix",
        &["GAVEL_PLANNING_BRANCH_PREFIX"],
        "letters, digits, `-`, `_`, `.` and `/`, as Git accepts them in the name of a branch",
        "What the names of branches begin with that a confirmed plan may write without a further approval.",
    )
    .default("gavel/"),
    setting(
        "planning.max_steps_per_task",
        &["GAVEL_PLANNING_MAX_STEPS_PER_TASK"],
        MANY,
        "Steps of one task of a plan; each step has three model calls and one tool call.",
    )
    .default("25"),
    setting(
        "planning.max_steps",
        &["GAVEL_PLANNING_MAX_STEPS"],
        MANY,
        "Steps of all tasks of a planning session.",
    )
    .default("300"),
    setting(
        "planning.max_tokens",
        &["GAVEL_PLANNING_MAX_TOKENS"],
        TOKENS,
        "Tokens that the work on a plan may use, over all its model calls.",
    )
    .absent("unlimited"),
    setting(
        "planning.context_tokens",
        &["GAVEL_PLANNING_CONTEXT_TOKENS"],
        TOKENS,
        "Tokens of one request to the model (four bytes count as one); the history of a longer task is shortened.",
    )
    .default("200000"),
    setting(
        "planning.model_patience",
        &["GAVEL_PLANNING_MODEL_PATIENCE"],
        LENGTH,
        "How long the work on a plan waits for an unavailable model before it fails.",
    )
    .default("15m"),
    setting(
        "identity_secret",
        &["GAVEL_IDENTITY_SECRET"],
        SIGNING,
        "Signs the identity tokens that MCP servers over HTTP ask for.",
    )
    .secret(),
    setting(
        "gemini.model",
        &["GEMINI_MODEL"],
        "a model's name, such as gemini-3.8-flash, or demo",
        "The model, where a definition names none; demo is the built-in demo model and overrides all definitions.",
    )
    .flag("--model")
    .default(DEFAULT_MODEL),
    setting(
        "gemini.thinking_level",
        &["GEMINI_THINKING_LEVEL"],
        "minimal, low, medium, high or xhigh",
        "How much the model thinks, where a definition sets neither thinkingLevel nor thinkingBudget.",
    )
    .absent("the model's default"),
    setting(
        "gemini.api_key",
        &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        "an API key of the Gemini API",
        "Key of the Gemini Developer API.",
    )
    .secret(),
    setting(
        "gemini.base_url",
        &["GEMINI_BASE_URL"],
        BASE,
        "A gateway or stand-in in place of Google's address.",
    )
    .absent("https://generativelanguage.googleapis.com"),
    setting(
        "vertex.project_id",
        &["VERTEX_AI_PROJECT_ID"],
        "a project's id or number",
        "Project of Vertex AI; with a location, Vertex AI is used even if there is a key.",
    ),
    setting(
        "vertex.location",
        &["VERTEX_AI_LOCATION"],
        "global, us, eu or a region such as europe-west4",
        "Location of Vertex AI.",
    ),
    setting(
        "vertex.endpoint",
        &["VERTEX_AI_ENDPOINT"],
        "a host, or scheme, host and port",
        "A gateway in place of the address that the location names.",
    )
    .absent("named by the location"),
    setting(
        "vertex.api_key",
        &["VERTEX_AI_API_KEY"],
        "an API key of Vertex AI",
        "Key of Vertex AI in express mode, without project and location.",
    )
    .secret(),
    setting(
        "model.connect_seconds",
        &["GAVEL_MODEL_CONNECT_SECONDS"],
        SECONDS,
        "Longest wait for a connection to the model.",
    )
    .default("2"),
    setting(
        "model.first_byte_seconds",
        &["GAVEL_MODEL_FIRST_BYTE_SECONDS"],
        SECONDS,
        "Longest wait for the head of a reply. A model that thinks long (Gemini 4, or high and above) has until the deadline.",
    )
    .default("120"),
    setting(
        "model.idle_seconds",
        &["GAVEL_MODEL_IDLE_SECONDS"],
        SECONDS,
        "Longest pause inside a reply; of a model that thinks long, once it has begun to answer.",
    )
    .default("60"),
    setting(
        "github.token",
        &["GITHUB_TOKEN"],
        "a token of GitHub",
        "The account that the bundled GitHub server acts with; `${GITHUB_TOKEN}` in mcp.json.",
    )
    .secret(),
    setting(
        "github.url",
        &["GITHUB_URL"],
        "scheme, host and port only, such as https://github.example.org",
        "GitHub's address in a browser; planning sessions accept only its repositories.",
    )
    .default("https://github.com"),
    setting(
        "auth.mode",
        &["GAVEL_AUTH_MODE"],
        "none, api_key or jwt",
        "How callers authenticate; none is allowed only on loopback addresses.",
    )
    .default("none"),
    setting(
        "auth.keys",
        &["GAVEL_AUTH_KEYS"],
        "a list of {name, sha256, tenant, roles, user} (in the environment as JSON); `gavel config new-key` prints one",
        "API keys of services, by their SHA-256.",
    )
    .absent("none"),
    setting(
        "auth.jwt.issuer",
        &["GAVEL_AUTH_JWT_ISSUER"],
        "the `iss` that tokens carry",
        "The issuer of the tokens.",
    ),
    setting(
        "auth.jwt.audience",
        &["GAVEL_AUTH_JWT_AUDIENCE"],
        "the `aud` that tokens carry",
        "The audience of the tokens.",
    ),
    setting(
        "auth.jwt.jwks_url",
        &["GAVEL_AUTH_JWT_JWKS_URL"],
        "an https:// URL (http:// on loopback)",
        "Where the issuer's public keys are.",
    ),
    setting(
        "auth.jwt.secret",
        &["GAVEL_AUTH_JWT_SECRET"],
        SIGNING,
        "Shared secret of HS256 tokens, in place of public keys.",
    )
    .secret(),
    setting(
        "auth.jwt.tenant_claim",
        &["GAVEL_AUTH_JWT_TENANT_CLAIM"],
        "a claim's name",
        "The claim that names the tenant; a token without it is refused.",
    )
    .absent("all users in the tenant `default`"),
    setting(
        "auth.jwt.roles_claim",
        &["GAVEL_AUTH_JWT_ROLES_CLAIM"],
        "a claim's name",
        "The claim with the roles: a list, or a text with roles separated by blanks.",
    )
    .default("roles"),
    setting(
        "rate_limit.per_minute",
        &["GAVEL_RATE_LIMIT_PER_MINUTE"],
        "a whole number from 1 to 1000000",
        "Requests of one user per minute.",
    )
    .default("60"),
    setting(
        "rate_limit.burst",
        &["GAVEL_RATE_LIMIT_BURST"],
        "a whole number from 1 to 1000000",
        "Requests of one user at once.",
    )
    .default("20"),
    setting(
        "records.content",
        &["GAVEL_RECORDS_CONTENT"],
        "full, hash or none",
        "What records keep of messages, replies, arguments and results.",
    )
    .default("full"),
    setting(
        "records.key",
        &["GAVEL_RECORDS_KEY"],
        SIGNING,
        "Key of the hashes of records.content = hash.",
    )
    .secret(),
    setting(
        "audit.key",
        &["GAVEL_AUDIT_KEY"],
        SIGNING,
        "Key of the audit chain; without it, rows cannot be changed undetected.",
    )
    .secret()
    .absent("generated by gavel: in a file next to a SQLite database, else in the database"),
    setting(
        "audit.old_keys",
        &["GAVEL_AUDIT_OLD_KEYS"],
        "keys of at least 32 bytes, separated by spaces or new lines",
        "Former values of audit.key, to verify older rows.",
    )
    .secret(),
    setting(
        "log.filter",
        &["RUST_LOG"],
        "a filter such as info, warn or gavel=debug,info",
        "What is logged, to standard error.",
    )
    .default("info"),
    setting(
        "log.format",
        &["GAVEL_LOG_FORMAT"],
        "auto, text or json",
        "How it is logged; auto: text on a terminal, else JSON lines.",
    )
    .default("auto"),
    setting(
        "otel.endpoint",
        &["OTEL_EXPORTER_OTLP_ENDPOINT"],
        "the http:// or https:// URL of an OTLP collector, such as http://localhost:4318",
        "Where traces are sent (OTLP over HTTP, protobuf); /v1/traces is appended.",
    )
    .absent("no traces are sent"),
    setting(
        "otel.traces_endpoint",
        &["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"],
        "the full http:// or https:// URL that receives traces",
        "As otel.endpoint, but only for traces and with nothing appended.",
    )
    .absent("otel.endpoint with /v1/traces"),
    setting(
        "otel.headers",
        &["OTEL_EXPORTER_OTLP_HEADERS"],
        "name=value pairs, separated by commas; %XX in a value stands for a byte",
        "Headers sent to the collector.",
    )
    .secret(),
    setting(
        "otel.service_name",
        &["OTEL_SERVICE_NAME"],
        "a name",
        "The service's name in traces.",
    )
    .default("gavel"),
];

/// Variables that begin with `GAVEL_` and are not settings: the key of `gavel chat --server`, the trusted directories, and
/// variables of the project's own tests and checks.
pub(super) const OTHER_VARIABLES: &[&str] = &[
    "GAVEL_API_KEY",
    "GAVEL_API_KEY_FILE",
    super::trust::TRUST,
    "GAVEL_BIN",
    "GAVEL_SHARED",
];

/// The setting with this key.
#[must_use]
pub fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_settings_share_a_name() {
        let mut names = BTreeSet::new();
        for setting in SETTINGS {
            assert!(names.insert(setting.key), "{}", setting.key);
            for name in setting.environment.iter().chain(setting.flag.as_ref()) {
                assert!(names.insert(name), "{name}");
            }
        }
    }

    #[test]
    fn no_section_is_also_a_setting() {
        for setting in SETTINGS {
            let inner = format!("{}.", setting.key);
            assert!(SETTINGS.iter().all(|other| !other.key.starts_with(&inner)), "{inner}");
        }
    }
}
