//! Logs and traces.

use http::header::{HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use secrecy::SecretString;
use tracing_subscriber::EnvFilter;
use url::Url;

use super::read::Read;
use super::values;

/// What is logged and where traces go.
#[derive(Clone, Debug)]
pub struct Logs {
    /// A filter that parses (`RUST_LOG`).
    pub filter: String,
    /// How lines look.
    pub format: LogFormat,
    /// Where traces are sent; absent: nowhere.
    pub traces: Option<Otlp>,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, else JSON lines.
    Auto,
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// A collector of traces.
#[derive(Clone, Debug)]
pub struct Otlp {
    /// The whole URL that takes traces.
    pub traces_url: Url,
    /// Sent with every request.
    pub headers: Vec<(String, SecretString)>,
    /// What traces call this service.
    pub service_name: String,
}

pub(super) fn read(read: &mut Read<'_>) -> Option<Logs> {
    let filter = read.parse("log.filter", |text| {
        EnvFilter::try_new(text).ok().map(|_| text.to_owned())
    });
    let format = read.parse("log.format", |text| match text {
        "auto" => Some(LogFormat::Auto),
        "text" => Some(LogFormat::Text),
        "json" => Some(LogFormat::Json),
        _ => None,
    });
    let base = read.parse("otel.endpoint", values::http_url);
    let traces_url = read
        .parse("otel.traces_endpoint", values::http_url)
        .or_else(|| base.map(|base| below(&base)));
    let headers = read.parse("otel.headers", headers);
    let service_name = read.word("otel.service_name");
    let traces = traces_url.and_then(|traces_url| {
        Some(Otlp {
            traces_url,
            headers: headers.unwrap_or_default(),
            service_name: service_name?,
        })
    });
    Some(Logs {
        filter: filter?,
        format: format?,
        traces,
    })
}

/// `name=value,name=value`, as OpenTelemetry has it: a value may hold `%XX` (OTLP exporter specification, "Specifying headers
/// via environment variables").
fn headers(text: &str) -> Option<Vec<(String, SecretString)>> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=')?;
            let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
            let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
            HeaderValue::from_str(&value).ok()?;
            Some((name.to_string(), SecretString::from(value.into_owned())))
        })
        .collect()
}

/// The base URL with `/v1/traces`, whatever path it has already.
fn below(base: &Url) -> Url {
    let mut url = base.clone();
    let path = format!("{}/v1/traces", base.path().trim_end_matches('/'));
    url.set_path(&path);
    url
}
