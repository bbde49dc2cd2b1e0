//! Logs and traces.

use http::header::{HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use secrecy::SecretString;
use tracing_subscriber::EnvFilter;
use url::Url;

use super::read::Read;
use super::values;

/// What is logged, and where traces are sent.
#[derive(Clone, Debug)]
pub struct Logs {
    /// A valid filter (`RUST_LOG`).
    pub filter: String,
    /// Format of log lines.
    pub format: LogFormat,
    /// The collector that receives traces; absent: traces are not sent.
    pub traces: Option<Otlp>,
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

/// `name=value,name=value`, the OpenTelemetry format: a value may contain `%XX` (OTLP exporter specification,
/// "Specifying headers via environment variables").
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

/// Appends `/v1/traces` to the base URL, after any path it has.
fn below(base: &Url) -> Url {
    let mut url = base.clone();
    let path = format!("{}/v1/traces", base.path().trim_end_matches('/'));
    url.set_path(&path);
    url
}
