//! The forms of a definition on the wire, and its entity tag.

use actix_web::HttpResponse;
use actix_web::http::header::{self, HeaderMap, HeaderValue};
use utoipa::IntoParams;

use super::super::error::Error;
use super::super::headers::{self, only};
use super::super::query;
use crate::domain::definition::Form;
use crate::surfaces::definitions::AgentInfo;

/// The state in which a definition may be put; [`expected`] reads it.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "describes parameters")]
pub(super) struct Expected {
    /// The version that must be current, in double quotes, as in `ETag`.
    #[param(rename = "If-Match", required = false, pattern = "^\"[1-9][0-9]{0,17}\"$")]
    version: String,
    /// `*`: there must be no such agent yet.
    #[param(rename = "If-None-Match", required = false, pattern = "^[*]$")]
    none: String,
}

/// Sets `ETag` to the version, for use in `If-Match`.
pub(super) fn tag(response: &mut HttpResponse, agent: &AgentInfo) {
    if let Some(version) = agent.version
        && let Ok(value) = HeaderValue::from_str(&format!("\"{version}\""))
    {
        response.headers_mut().insert(header::ETAG, value);
    }
}

/// Parses `If-Match: "3"` or `If-None-Match: *`.
pub(super) fn expected(headers: &HeaderMap) -> Result<Option<i64>, Error> {
    if headers.contains_key(header::IF_NONE_MATCH) {
        let any = only(headers, &header::IF_NONE_MATCH).is_some_and(|value| value.as_bytes() == b"*");
        return if any {
            Ok(Some(0))
        } else {
            Err(Error::InvalidHeader("If-None-Match", "must be *"))
        };
    }
    if !headers.contains_key(header::IF_MATCH) {
        return Ok(None);
    }
    let version = only(headers, &header::IF_MATCH).and_then(|value| as_tagged(value.to_str().ok()?));
    version.map(Some).ok_or(Error::InvalidHeader(
        "If-Match",
        "must be a version in double quotes, as in ETag",
    ))
}

/// Parses the version of a tag that [`tag`] wrote.
pub(super) fn as_tagged(text: &str) -> Option<i64> {
    version_number(text.strip_prefix('"')?.strip_suffix('"')?)
}

/// Parses 1, 2, 3 …; other spellings of a number are rejected.
pub(super) fn version_number(text: &str) -> Option<i64> {
    query::number(text).filter(|_| !text.starts_with('0'))
}

pub(super) const MEDIA: [(&str, Form); 7] = [
    ("application/json", Form::Json),
    ("application/yaml", Form::Yaml),
    ("application/x-yaml", Form::Yaml),
    ("text/yaml", Form::Yaml),
    ("text/markdown", Form::Markdown),
    ("application/x-protobuf", Form::Proto),
    ("application/protobuf", Form::Proto),
];

pub(super) fn form_of(value: &HeaderValue) -> Option<(Form, &'static str)> {
    let media = value.to_str().ok()?.split(';').next()?.trim();
    let found = MEDIA.iter().find(|(name, _)| name.eq_ignore_ascii_case(media))?;
    Some((found.1, found.0))
}

/// A format other than JSON that `Accept` names first; the JSON response contains more than the definition.
pub(super) fn asked_for(headers: &HeaderMap) -> Option<(Form, &'static str)> {
    let value = only(headers, &header::ACCEPT)?;
    let first = value
        .to_str()
        .ok()?
        .split(',')
        .find(|range| !headers::is_refused(range))?;
    let (form, media) = form_of(&HeaderValue::from_str(first).ok()?)?;
    (form != Form::Json).then_some((form, media))
}
