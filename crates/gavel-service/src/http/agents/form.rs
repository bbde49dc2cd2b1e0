//! The forms of a definition on the wire, and its entity tag.

use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use utoipa::PartialSchema;
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::{Content, Required};

use crate::api::agents::AgentInfo;
use crate::domain::definition::Form;
use crate::http::about::About;
use crate::http::body::Body;
use crate::http::error::Error;
use crate::http::headers::{self, only};
use crate::http::openapi::JsonSchema;
use crate::http::openapi::params::{header as parameter, string};
use crate::http::query;
use crate::http::request::{Request, Take};

/// A definition as it was sent.
pub(crate) struct DefinitionBody {
    pub(super) form: Form,
    pub(super) body: Body,
}

impl Take for DefinitionBody {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        let form = only(request.http.headers(), &header::CONTENT_TYPE).and_then(form_of);
        let (form, _) = form.ok_or(Error::NoForm)?;
        let body = request.arriving().any().await?;
        Ok(Self { form, body })
    }

    fn describe(about: &mut About<'_>) {
        let json = Content::new(Some(about.schema::<JsonSchema>()));
        let text = Content::new(Some(String::schema()));
        let body = RequestBodyBuilder::new()
            .description(Some(
                "A definition in any form; its name must be that of the path. At most 1 MiB.",
            ))
            .content("application/json", json)
            .content("application/yaml", text.clone())
            .content("text/markdown", text)
            .content("application/x-protobuf", Content::default())
            .required(Some(Required::True));
        about.body(body);
    }
}

/// The version that must be current for a definition to be put; 0: there must be no such agent yet.
pub(crate) struct Expected(pub(super) Option<i64>);

impl Take for Expected {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        expected(request.http.headers()).map(Self)
    }

    fn describe(about: &mut About<'_>) {
        let version = "The version that must be current, in double quotes, as in `ETag`.";
        let quoted = string().pattern(Some("^\"[1-9][0-9]{0,17}\"$"));
        about.parameter(parameter("If-Match", version, quoted));
        let none = "`*`: there must be no such agent yet.";
        about.parameter(parameter("If-None-Match", none, string().pattern(Some("^[*]$"))));
    }
}

/// `ETag` with the version, for use in `If-Match`.
pub(super) fn tag(agent: &AgentInfo) -> Option<(HeaderName, HeaderValue)> {
    let tag = HeaderValue::try_from(format!("\"{}\"", agent.version?)).ok()?;
    Some((header::ETAG, tag))
}

/// Parses `If-Match: "3"` or `If-None-Match: *`.
fn expected(headers: &HeaderMap) -> Result<Option<i64>, Error> {
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
fn as_tagged(text: &str) -> Option<i64> {
    version_number(text.strip_prefix('"')?.strip_suffix('"')?)
}

/// Parses 1, 2, 3 …; other spellings of a number are rejected.
pub(super) fn version_number(text: &str) -> Option<i64> {
    query::number(text).filter(|_| !text.starts_with('0'))
}

const MEDIA: [(&str, Form); 7] = [
    ("application/json", Form::Json),
    ("application/yaml", Form::Yaml),
    ("application/x-yaml", Form::Yaml),
    ("text/yaml", Form::Yaml),
    ("text/markdown", Form::Markdown),
    ("application/x-protobuf", Form::Proto),
    ("application/protobuf", Form::Proto),
];

fn form_of(value: &HeaderValue) -> Option<(Form, &'static str)> {
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
