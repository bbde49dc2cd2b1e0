//! The sections of settings. A setting is one line: name, type, what is allowed, what else it has, documentation. Its key
//! in `gavel.toml` is the section and the name; its variable is derived from the key, unless the line names others.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use gavel_reading::{ByText, Digits, OneOf, Values, settings};
use secrecy::{ExposeSecret, SecretString};
use tracing_subscriber::EnvFilter;
use url::Url;

use super::read::Read;
use super::values;
use super::values::Repositories;
use super::values::{ApiKey, ApiKeys};
use crate::adapters::store::{ContentKey, ContentMode};
use crate::domain::definition::ThinkingLevel;
use crate::domain::repository::RepositoryPattern;
use crate::domain::settings::{SessionRules, TaskLimits, ThreadSettings};

/// The default model: a current Flash model with no shutdown date.
pub const DEFAULT_MODEL: &str = "gemini-3.8-flash";

const MANY: Digits<u32> = Digits(1..=1_000_000);
pub(super) const PLACES: Digits<usize> = Digits(1..=1_000_000);
const REQUESTS: ByText<NonZeroU32> = ByText {
    allowed: "a whole number from 1 to 1000000",
    read: |text| text.parse().ok().filter(|count: &NonZeroU32| count.get() <= 1_000_000),
};
const HOURS: ByText<Duration> = ByText {
    allowed: "a number of hours over 0, up to 8760",
    read: |text| values::span(text, 3600.0, 8760.0),
};
const DAYS: ByText<Duration> = ByText {
    allowed: "a number of days over 0, up to 36500",
    read: |text| values::span(text, 86_400.0, 36_500.0),
};
pub(super) const SECONDS: ByText<Duration> = ByText {
    allowed: "seconds above 0 and up to 3600, such as 2 or 0.5",
    read: |text| values::span(text, 1.0, 3600.0),
};
pub(super) const SIGNING: ByText<SecretString> = ByText {
    allowed: "at least 32 bytes (openssl rand -hex 32 makes one)",
    read: values::signing_secret,
};
const BASE: ByText<String> = ByText {
    allowed: "scheme, host and port only, such as https://gateway.internal:8443 (the path is appended)",
    read: values::base_url,
};

/// A text that is not blank.
const fn word(allowed: &'static str) -> ByText<String> {
    let read = values::word;
    ByText { allowed, read }
}

const fn secret(allowed: &'static str) -> ByText<SecretString> {
    let read = values::secret;
    ByText { allowed, read }
}

pub(super) const fn path(allowed: &'static str) -> ByText<PathBuf> {
    let read = |text: &str| values::word(text).map(PathBuf::from);
    ByText { allowed, read }
}

const fn google_name(allowed: &'static str) -> ByText<String> {
    let read = values::google_name;
    ByText { allowed, read }
}

settings! {
    /// Rules for tool calls.
    #[derive(Clone, Debug)]
    pub struct Policy = "policy." {
        /// Rules for tool calls, with tests of them.
        file: Option<PathBuf> = path("the path of a YAML file"), readable(), variables(&["GAVEL_POLICY"]),
            flag("--policy", "PATH"), absent("no rules");
    }
}

settings! {
    /// Runs of agents.
    #[derive(Clone, Debug)]
    pub struct Runs = "runs." {
        /// Background runs of agents in progress at once in one process; further runs wait. One tenant may use at most
        /// seven eighths of them, one user three quarters.
        background: usize = PLACES, default("64");
        /// How long a process may go without renewing its leases before another process takes over its runs.
        lease_seconds: Duration = SECONDS, default("10");
        /// How long ended runs and planning sessions are kept, with their journals, actions, lines in threads and plans;
        /// decisions until records.keep_days.
        keep_days: Option<Duration> = DAYS, absent("forever");
    } with values: impl Values {
        /// How threads behave.
        threads: ThreadSettings = ThreadSettings::read(values);
    }
}

settings! {
    /// Approval requests.
    #[derive(Clone, Debug)]
    pub struct Approvals = "approvals." {
        /// How long an approver may take to approve or reject an action; after that the action is not executed.
        expire_hours: Duration = HOURS, default("24");
    }
}

settings! {
    /// Login sessions of the console.
    #[derive(Clone, Debug)]
    pub struct Console = "console." {
        /// How long a login to the console lasts; a login with a token never lasts longer than the token.
        session_hours: Duration = HOURS, default("8");
        /// How long a login to the console may be idle before it ends.
        idle_hours: Duration = HOURS, default("1");
    }
}

settings! {
    /// Planning sessions.
    #[derive(Clone, Debug)]
    pub struct Planning = "planning." {
        /// The repositories that calls and planning sessions may use.
        repositories: Option<Vec<RepositoryPattern>> = Repositories,
            absent("none; with auth.mode = none every repository");
        /// Planning sessions of one user that plan or work at once, and a tenth of those that wait; more are refused
        /// with 429.
        sessions_per_user: u32 = MANY, default("3");
        /// Planning sessions of all users that plan or work at once, and a tenth of those that wait; more are refused
        /// with 429.
        sessions: u32 = MANY, default("20");
        /// Directory of templates; a plan.md, refine.md, reason.md, act.md or reflect.md there replaces the built-in
        /// one.
        templates: Option<PathBuf> = path("the path of a directory"), readable(), absent("built in");
    } with values: impl Values {
        /// How far sessions may go.
        rules: SessionRules = SessionRules::read(values);
        /// The limits of the work on a plan.
        limits: TaskLimits = TaskLimits::read(values);
    }
}

settings! {
    /// The Gemini Developer API, and the model of either service.
    pub(super) struct Gemini = "gemini." {
        /// The model, where a definition names none; demo is the built-in demo model and overrides all definitions.
        model: String = word("a model's name, such as gemini-3.8-flash, or demo"), variables(&["GEMINI_MODEL"]),
            flag("--model", "NAME"), default(DEFAULT_MODEL);
        /// How much the model thinks, where a definition sets neither thinkingLevel nor thinkingBudget.
        thinking_level: Option<ThinkingLevel> = OneOf(ThinkingLevel::NAMES), variables(&["GEMINI_THINKING_LEVEL"]),
            absent("the model's default");
        /// Key of the Gemini Developer API.
        api_key: Option<SecretString> = secret("an API key of the Gemini API"),
            variables(&["GEMINI_API_KEY", "GOOGLE_API_KEY"]), secret();
        /// A gateway or stand-in in place of Google's address.
        base_url: Option<String> = BASE, variables(&["GEMINI_BASE_URL"]),
            absent("https://generativelanguage.googleapis.com");
    }
}

settings! {
    /// Vertex AI.
    pub(super) struct Vertex = "vertex." {
        /// Project of Vertex AI; with a location, Vertex AI is used even if there is a key.
        project_id: Option<String> = google_name("a project's id or number"), variables(&["VERTEX_AI_PROJECT_ID"]);
        /// Location of Vertex AI.
        location: Option<String> = google_name("global, us, eu or a region such as europe-west4"),
            variables(&["VERTEX_AI_LOCATION"]);
        /// A gateway in place of the address that the location names.
        endpoint: Option<String> = ByText {
            allowed: "a host, or scheme, host and port",
            read: values::endpoint,
        }, variables(&["VERTEX_AI_ENDPOINT"]), absent("named by the location");
        /// Key of Vertex AI in express mode, without project and location.
        api_key: Option<SecretString> = secret("an API key of Vertex AI"), variables(&["VERTEX_AI_API_KEY"]), secret();
    }
}

settings! {
    /// How long to wait for a real model.
    #[derive(Clone, Debug)]
    pub struct ModelTimeouts = "model." {
        /// Longest wait for a connection to the model.
        connect_seconds: Duration = SECONDS, default("2");
        /// Longest wait for the head of a reply. A model that thinks long (Gemini 4, or high and above) has until the
        /// deadline.
        first_byte_seconds: Duration = SECONDS, default("120");
        /// Longest pause inside a reply; of a model that thinks long, once it has begun to answer.
        idle_seconds: Duration = SECONDS, default("60");
    }
}

settings! {
    /// What models cost.
    #[derive(Clone, Debug)]
    pub struct PriceSettings = "prices." {
        /// Prices of models, in the form of the built-in table (`gavel prices list`). It adds models, and replaces those
        /// that it has too.
        file: Option<PathBuf> = path("the path of a TOML file"), readable(), variables(&["GAVEL_PRICES"]),
            absent("the built-in prices alone");
    }
}

settings! {
    /// GitHub.
    #[derive(Clone, Debug)]
    pub struct GitHub = "github." {
        /// The account that the bundled GitHub server acts with; `${GITHUB_TOKEN}` in mcp.json.
        token: Option<SecretString> = secret("a token of GitHub"), variables(&["GITHUB_TOKEN"]), secret();
        /// GitHub's address in a browser; planning sessions accept only its repositories.
        url: Url = ByText {
            allowed: "scheme, host and port only, such as https://github.example.org",
            read: |text| Url::parse(&values::base_url(text)?).ok(),
        }, variables(&["GITHUB_URL"]), default("https://github.com");
    }
}

settings! {
    /// How callers authenticate, and the keys of services.
    pub(super) struct AuthSettings = "auth." {
        /// How callers authenticate; none is allowed only on loopback addresses.
        mode: AuthMode = OneOf(&[
            ("none", AuthMode::None),
            ("api_key", AuthMode::ApiKey),
            ("jwt", AuthMode::Jwt),
        ]), default("none");
        /// API keys of services, by their SHA-256.
        keys: Option<Vec<ApiKey>> = ApiKeys, absent("none");
    }
}

/// How callers authenticate.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum AuthMode {
    None,
    ApiKey,
    Jwt,
}

settings! {
    /// Which tokens are accepted.
    pub(super) struct JwtSettings = "auth.jwt." {
        /// The issuer of the tokens.
        issuer: Option<String> = word("the `iss` that tokens carry");
        /// The audience of the tokens.
        audience: Option<String> = word("the `aud` that tokens carry");
        /// Where the issuer's public keys are.
        jwks_url: Option<Url> = ByText {
            allowed: "an https:// URL (http:// on loopback)",
            read: values::https_url,
        };
        /// Shared secret of HS256 tokens, in place of public keys.
        secret: Option<SecretString> = SIGNING, secret();
        /// The claim that names the tenant; a token without it is refused.
        tenant_claim: Option<String> = word("a claim's name"), absent("all users in the tenant `default`");
        /// The claim with the roles: a list, or a text with roles separated by blanks.
        roles_claim: String = word("a claim's name"), default("roles");
    }
}

settings! {
    /// Request rate limit of one user.
    #[derive(Clone, Debug)]
    pub struct RateLimit = "rate_limit." {
        /// Requests of one user per minute.
        per_minute: NonZeroU32 = REQUESTS, default("60");
        /// Requests of one user at once.
        burst: NonZeroU32 = REQUESTS, default("20");
    }
}

settings! {
    /// What records keep.
    pub(super) struct Records = "records." {
        /// What records keep of messages, replies, arguments and results.
        content: Kept = OneOf(&[("full", Kept::Full), ("hash", Kept::Hash), ("none", Kept::None)]), default("full");
        /// Key of the hashes of records.content = hash.
        key: Option<SecretString> = SIGNING, secret();
        /// How long closed decisions are kept, with their calls and texts, and ended runs at most; counts are kept forever.
        keep_days: Option<Duration> = DAYS, absent("forever");
        /// The least that records.keep_days may be: half a year, as the EU's AI Act asks of deployers of high-risk systems.
        keep_at_least_days: Duration = DAYS, default("184");
    }
}

/// What records keep of content.
#[derive(Clone, Copy)]
pub(super) enum Kept {
    Full,
    Hash,
    None,
}

settings! {
    /// Keys of the audit chain, the current one and former ones. Each has at least 32 bytes.
    #[derive(Clone, Debug)]
    pub struct Audit = "audit." {
        /// Key of the audit chain; without it, rows cannot be changed undetected.
        key: Option<SecretString> = SIGNING, secret(),
            absent("generated by gavel: in a file next to a SQLite database, else in the database");
        /// Former values of audit.key, to verify older rows.
        old_keys: Option<Vec<SecretString>> = ByText::<Vec<SecretString>> {
            allowed: "keys of at least 32 bytes, separated by spaces or new lines",
            read: |text| text.split_whitespace().map(values::signing_secret).collect(),
        }, secret();
    }
}

settings! {
    /// Log lines.
    #[derive(Clone, Debug)]
    pub struct Log = "log." {
        /// What is logged, to standard error.
        filter: String = ByText {
            allowed: "a filter such as info, warn or gavel=debug,info",
            read: |text| EnvFilter::try_new(text).ok().map(|_| text.to_owned()),
        }, variables(&["RUST_LOG"]), default("info");
        /// How it is logged; auto: text on a terminal, else JSON lines.
        format: LogFormat = OneOf(&[
            ("auto", LogFormat::Auto),
            ("text", LogFormat::Text),
            ("json", LogFormat::Json),
        ]), default("auto");
    }
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, else JSON lines.
    Auto,
    /// Human-readable text.
    Text,
    /// One JSON object per line.
    Json,
}

settings! {
    /// The trace collector.
    pub(super) struct Otel = "otel." {
        /// Where traces are sent (OTLP over HTTP, protobuf); /v1/traces is appended.
        endpoint: Option<Url> = ByText {
            allowed: "the http:// or https:// URL of an OTLP collector, such as http://localhost:4318",
            read: values::http_url,
        }, variables(&["OTEL_EXPORTER_OTLP_ENDPOINT"]), absent("no traces are sent");
        /// As otel.endpoint, but only for traces and with nothing appended.
        traces_endpoint: Option<Url> = ByText {
            allowed: "the full http:// or https:// URL that receives traces",
            read: values::http_url,
        }, variables(&["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]), absent("otel.endpoint with /v1/traces");
        /// Headers sent to the collector.
        headers: Option<Vec<(String, SecretString)>> = ByText {
            allowed: "name=value pairs, separated by commas; %XX in a value stands for a byte",
            read: values::headers,
        }, variables(&["OTEL_EXPORTER_OTLP_HEADERS"]), secret();
        /// The service's name in traces.
        service_name: String = word("a name"), variables(&["OTEL_SERVICE_NAME"]), default("gavel");
    }
}

pub(super) fn read_records(values: &Read<'_>) -> Option<(ContentMode, Option<Duration>)> {
    let Records {
        content,
        key,
        keep_days,
        keep_at_least_days,
    } = Records::read(values)?;
    if keep_days.is_some_and(|kept| kept < keep_at_least_days) {
        let allowed = "at least records.keep_at_least_days, the floor that the law or your contracts set";
        values.error("records.keep_days", &values.shown("records.keep_days"), allowed);
    }
    if key.is_some() && !matches!(content, Kept::Hash) {
        values.warn("records.key is given, but only records.content = hash uses it");
    }
    let content = match content {
        Kept::Full => ContentMode::Full,
        Kept::Hash => {
            let key = values.needed("records.key", key, "records.content = hash")?;
            ContentMode::Hash(ContentKey::new(key.expose_secret().as_bytes()))
        }
        Kept::None => ContentMode::None,
    };
    Some((content, keep_days))
}

/// A trace collector.
#[derive(Clone, Debug)]
pub struct Otlp {
    /// The full URL that receives traces.
    pub traces_url: Url,
    /// Headers of every request.
    pub headers: Vec<(String, SecretString)>,
    /// The service name in traces.
    pub service_name: String,
}

pub(super) fn read_traces(values: &Read<'_>) -> Option<Option<Otlp>> {
    let otel = Otel::read(values)?;
    let traces_url = otel.traces_endpoint.or_else(|| otel.endpoint.as_ref().map(below));
    Some(traces_url.map(|traces_url| Otlp {
        traces_url,
        headers: otel.headers.unwrap_or_default(),
        service_name: otel.service_name,
    }))
}

/// Appends `/v1/traces` to the base URL, after any path it has.
fn below(base: &Url) -> Url {
    let mut url = base.clone();
    let path = format!("{}/v1/traces", base.path().trim_end_matches('/'));
    url.set_path(&path);
    url
}
