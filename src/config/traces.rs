//! Where traces are sent.

use secrecy::SecretString;
use url::Url;

use super::read::Read;
use super::settings::Otel;

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

pub(super) fn read(values: &Read<'_>) -> Option<Option<Otlp>> {
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
