//! Request bodies, limited in size, time and total memory.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Deref;

use actix_web::error::PayloadError;
use actix_web::http::header::{self, HeaderMap, HeaderValue};
use actix_web::web::Payload;
use actix_web::{HttpMessage, HttpRequest};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use serde_path_to_error::{Path, Segment};
use utoipa::ToSchema;
use utoipa::openapi::{Ref, RefOr, Schema};

use super::EdgeLimits;
use super::error::{Code, Error};
use crate::api::problem::FieldError;
use crate::domain::budget::{Exceeded, Share};
use crate::domain::object::Object;
use crate::domain::schema::{CheckError, Effort, JsonSchema};
use crate::domain::surrogates;
use crate::surfaces::approvals::MAX_REASON;

/// Most bytes of a console form: a reason of 4 KiB, percent-encoded, and a token.
const FORM: usize = 64 << 10;

/// A request body. While it is held, its share of the memory budget for bodies is held too.
#[derive(Debug)]
pub(super) struct Body {
    bytes: Bytes,
    /// Absent for a body that arrived in one piece, which takes no more memory than its connection.
    _share: Option<Share>,
}

impl Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The media type of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Media {
    /// `application/json`.
    Json,
    /// `text/plain`.
    Text,
}

/// A body that is about to arrive. `take` gives its share of the memory budget, for this many bytes.
pub(super) struct Arriving<'a, T> {
    pub(super) http: &'a HttpRequest,
    pub(super) payload: Payload,
    pub(super) limits: &'a EdgeLimits,
    pub(super) take: T,
}

impl<T: FnOnce(u64) -> Result<Share, Exceeded>> Arriving<'_, T> {
    /// Reads a JSON body. A body that announces or reaches more than the limit is not read to its end.
    ///
    /// # Errors
    /// 415, 413, 408, 503 if too many bodies are in progress, or 400 if the body ends early.
    pub(super) async fn json(self) -> Result<Body, Error> {
        match media(self.http) {
            Some(Media::Json) => self.any().await,
            _ => Err(not_json()),
        }
    }

    /// Reads a JSON or plain-text body, both in UTF-8; an empty body may have any media type or none.
    ///
    /// # Errors
    /// As [`Arriving::json`].
    pub(super) async fn input(self) -> Result<(Body, Media), Error> {
        let media = media(self.http);
        if media.is_none() && announced(self.http.headers()).is_some_and(|size| size > 0) {
            return Err(not_json_or_text());
        }
        let body = self.any().await?;
        match media {
            Some(media) => Ok((body, media)),
            None if body.is_empty() => Ok((body, Media::Text)),
            None => Err(not_json_or_text()),
        }
    }

    /// Reads a body of any media type, within the same limits. In a JSON body an unpaired surrogate escape, as
    /// JavaScript programs write it after cutting a text, becomes U+FFFD.
    ///
    /// # Errors
    /// 413, 408, 503 if too many bodies are in progress, or 400 if the body ends early, or is declared JSON and is not
    /// UTF-8; 415 for a content coding.
    pub(super) async fn any(self) -> Result<Body, Error> {
        let (http, most) = (self.http, self.limits.body);
        let body = self.bounded(most).await?;
        match media(http) {
            Some(Media::Json) => body.whole_characters(),
            _ => Ok(body),
        }
    }

    /// Reads the form of a console page.
    ///
    /// # Errors
    /// As [`Arriving::any`].
    pub(super) async fn form(self) -> Result<Body, Error> {
        self.bounded(FORM).await
    }

    async fn bounded(self, most: usize) -> Result<Body, Error> {
        is_plain(self.http.headers())?;
        let announced = announced(self.http.headers());
        if announced.is_some_and(|size| size > most) {
            return Err(too_large(most));
        }
        let body = collect(self.payload, most, announced, self.take);
        let body = tokio::time::timeout(self.limits.body_time, body).await;
        body.unwrap_or_else(|_| Err(Code::RequestTimeout.into()))
    }
}

impl Body {
    fn whole_characters(self) -> Result<Self, Error> {
        if let Err(error) = std::str::from_utf8(&self.bytes) {
            let detail = format!(
                "is not UTF-8 at byte {}; allowed: JSON in UTF-8",
                error.valid_up_to() + 1
            );
            return Err(Error::invalid("", detail));
        }
        let repaired = match surrogates::repaired(&self.bytes) {
            Cow::Owned(repaired) => Bytes::from(repaired),
            Cow::Borrowed(_) => return Ok(self),
        };
        Ok(Self {
            bytes: repaired,
            ..self
        })
    }
}

/// The form of a body, for errors: its members, with a question mark those that may be absent.
fn form(schema: &RefOr<Schema>) -> String {
    let RefOr::T(Schema::Object(object)) = schema else {
        return "an object".to_owned();
    };
    let mark = |name: &String| if object.required.contains(name) { "" } else { "?" };
    let members = object.properties.keys().map(|name| format!("{name:?}{}", mark(name)));
    format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
}

/// Parses a JSON body.
///
/// # Errors
/// 400 with all places that do not match the schema of the body, or with the first that a schema does not know.
pub(super) fn parse<T: DeserializeOwned + ToSchema>(body: &[u8]) -> Result<T, Error> {
    let invalid = |pointer: String, error: &serde_json::Error| {
        if let Some(mismatches) = serde_json::from_slice(body)
            .ok()
            .and_then(|body| mismatches::<T>(&body))
        {
            return mismatches.into();
        }
        let allowed = form(&T::schema());
        Error::invalid(pointer, format!("is not valid: {error}; allowed: {allowed}"))
    };
    let mut json = serde_json::Deserializer::from_slice(body);
    let Object(given) =
        serde_path_to_error::deserialize(&mut json).map_err(|error| invalid(pointer(error.path()), error.inner()))?;
    json.end().map_err(|error| invalid(String::new(), &error))?;
    Ok(given)
}

/// The most accesses for finding the places. Unlike [`Effort::Quick`], it compiles the patterns, which are our own.
const EFFORT: Effort = Effort::AtMost(20_000);

/// The places where a value does not match the schema of this body, as the API description shows it.
fn mismatches<T: ToSchema>(value: &Value) -> Option<Vec<FieldError>> {
    let mut schemas = Vec::new();
    T::schemas(&mut schemas);
    schemas.push((T::name().into_owned(), T::schema()));
    let schemas: BTreeMap<_, _> = schemas.into_iter().collect();
    let schema = json!({"$ref": Ref::from_schema_name(T::name()).ref_location, "components": {"schemas": schemas}});
    let schema = JsonSchema::compile(to_raw_value(&schema).ok()?).ok()?;
    match schema.check(value, EFFORT) {
        Err(CheckError::Invalid(places)) => Some(
            places
                .into_iter()
                .map(|one| FieldError::new(one.place, one.message))
                .collect(),
        ),
        Err(CheckError::TooCostly) | Ok(()) => None,
    }
}

/// A reason that a person gives, of limited length.
///
/// # Errors
/// It is longer than [`MAX_REASON`].
pub(super) fn reason(reason: Option<String>, pointer: &str) -> Result<Option<String>, Error> {
    match reason {
        Some(long) if long.len() > MAX_REASON => {
            Err(Error::invalid(pointer, format!("is longer than {MAX_REASON} bytes")))
        }
        reason => Ok(reason),
    }
}

/// Formats a path as a JSON pointer (RFC 6901).
fn pointer(path: &Path) -> String {
    let steps = path.iter().map(|step| match step {
        Segment::Seq { index } => format!("/{index}"),
        Segment::Map { key } => format!("/{}", key.replace('~', "~0").replace('/', "~1")),
        Segment::Enum { .. } | Segment::Unknown => String::new(),
    });
    steps.collect()
}

fn announced(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// A body that arrives in one piece, as most do, is not copied and takes no share. Any other body takes its share
/// before gavel waits for more of it: the announced length, or the bytes received.
async fn collect(
    mut payload: Payload,
    limit: usize,
    announced: Option<usize>,
    take: impl FnOnce(u64) -> Result<Share, Exceeded>,
) -> Result<Body, Error> {
    let Some(first) = next(&mut payload).await? else {
        return Ok(Body {
            bytes: Bytes::new(),
            _share: None,
        });
    };
    if first.len() > limit {
        return Err(too_large(limit));
    }
    let size = announced.unwrap_or_default().max(first.len());
    let mut share = match announced == Some(first.len()) {
        true => None,
        false => Some(take(size as u64)?),
    };
    let Some(mut piece) = next(&mut payload).await? else {
        return Ok(Body {
            bytes: first,
            _share: share,
        });
    };
    let mut taken = size;
    let mut whole = BytesMut::with_capacity(size);
    whole.extend_from_slice(&first);
    loop {
        let size = whole.len() + piece.len();
        if size > limit {
            return Err(too_large(limit));
        }
        if let Some(share) = share.as_mut().filter(|_| size > taken) {
            share.grow((size - taken) as u64)?;
            taken = size;
        }
        whole.extend_from_slice(&piece);
        piece = match next(&mut payload).await? {
            Some(piece) => piece,
            None => break,
        };
    }
    Ok(Body {
        bytes: whole.freeze(),
        _share: share,
    })
}

async fn next(payload: &mut Payload) -> Result<Option<Bytes>, Error> {
    payload.next().await.transpose().map_err(|error: PayloadError| {
        tracing::debug!(%error, "a request body ended early");
        Error::new(Code::InvalidRequest, "The body ended early, or its framing is invalid.")
    })
}

fn too_large(limit: usize) -> Error {
    Error::new(Code::BodyTooLarge, format!("The body has more than {limit} bytes."))
}

pub(super) fn not_json() -> Error {
    let detail = "The body must be application/json in UTF-8; set Content-Type.";
    Error::new(Code::UnsupportedMediaType, detail).hint(header::ACCEPT, "application/json")
}

fn not_json_or_text() -> Error {
    let detail = "The body must be application/json or text/plain, in UTF-8; set Content-Type. Omit the body for an agent \
                  without inputs.";
    Error::new(Code::UnsupportedMediaType, detail).hint(header::ACCEPT, "application/json, text/plain")
}

/// The media type of the body, in UTF-8 if it names a charset.
fn media(http: &HttpRequest) -> Option<Media> {
    let mime = http.mime_type().ok()??;
    match mime.essence_str() {
        _ if mime.get_param("charset").is_some_and(|charset| charset != "utf-8") => None,
        "application/json" => Some(Media::Json),
        "text/plain" => Some(Media::Text),
        _ => None,
    }
}

/// Rejects content codings.
fn is_plain(headers: &HeaderMap) -> Result<(), Error> {
    let identity = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    if headers.get_all(header::CONTENT_ENCODING).all(identity) {
        Ok(())
    } else {
        let detail = "The body must not have a Content-Encoding.";
        Err(Error::new(Code::UnsupportedMediaType, detail).hint(header::ACCEPT_ENCODING, "identity"))
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn each_error_of_a_body_is_named_by_its_place() {
        #[derive(Debug, serde::Deserialize, ToSchema)]
        #[serde(deny_unknown_fields)]
        struct Given {
            #[allow(dead_code)]
            happened: Option<Vec<bool>>,
        }
        let places = |text: &str| match parse::<Given>(text.as_bytes()) {
            Err(error) => error
                .problem
                .into_more()
                .errors
                .iter()
                .map(FieldError::to_string)
                .collect::<Vec<_>>()
                .join("; "),
            other => panic!("{text}: {other:?}"),
        };
        for (text, says) in [
            (
                r#"{"happened": [true, "no", 7], "hapened": []}"#,
                "/happened/1: \"no\" is not of type \"boolean\"; /happened/2: 7 is not of type \"boolean\"; \
                 /hapened: is not known; allowed: happened",
            ),
            (
                r#"{"happened": [], "happened": []}"#,
                ": is not valid: duplicate field `happened` at line 1 column 27; allowed: {\"happened\"?}",
            ),
            (
                r#"{"happened": []} x"#,
                ": is not valid: trailing characters at line 1 column 18; allowed: {\"happened\"?}",
            ),
            (
                "",
                ": is not valid: EOF while parsing a value at line 1 column 0; allowed: {\"happened\"?}",
            ),
            ("[[true]]", ": [[true]] is not of type \"object\""),
        ] {
            assert_eq!(places(text), says, "{text}");
        }
    }

    #[test]
    fn only_json_in_utf_8_counts_as_json() {
        let is_json = |text: &str| {
            let request = TestRequest::default().insert_header((header::CONTENT_TYPE, text));
            media(&request.to_http_request()) == Some(Media::Json)
        };
        for good in [
            "application/json",
            "Application/JSON; charset=UTF-8",
            "application/json;charset=\"utf-8\"",
            "application/json; x=y",
        ] {
            assert!(is_json(good), "{good}");
        }
        for bad in [
            "",
            "text/plain",
            "application/jsonx",
            "application/json; charset=latin1",
            "application/x-www-form-urlencoded",
        ] {
            assert!(!is_json(bad), "{bad}");
        }
    }
}
