//! Request bodies, bounded in size and time.

use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::error::PayloadError;
use actix_web::http::header::{self, HeaderMap, HeaderValue};
use actix_web::web::Payload;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use serde::Deserialize;
use serde_path_to_error::{Path, Segment};

use super::EdgeLimits;
use super::error::Error;
use super::headers::only;
use crate::domain::object::Object;
use crate::surfaces::chat::request::FieldError;

/// Reads a JSON body. A body that says or turns out to be over the limit is not read to its end.
///
/// # Errors
/// 415, 413, 408, or 400 when it breaks off.
pub(super) async fn read(request: &HttpRequest, payload: Payload, limits: &EdgeLimits) -> Result<Bytes, Error> {
    is_plain_json(request.headers())?;
    read_any(request, payload, limits).await
}

/// Reads a body of any type, within the same limits.
///
/// # Errors
/// 413, 408, or 400 when it breaks off; 415 for a content coding.
pub(super) async fn read_any(request: &HttpRequest, payload: Payload, limits: &EdgeLimits) -> Result<Bytes, Error> {
    let headers = request.headers();
    is_plain(headers)?;
    let announced = announced(headers);
    if announced.is_some_and(|size| size > limits.body) {
        return Err(Error::BodyTooLarge(limits.body));
    }
    let collected = collect(payload, limits.body, announced.unwrap_or_default());
    within(limits.body_time, collected).await
}

/// What a JSON body says; `allowed` shows how it should look.
///
/// # Errors
/// 400 with the place of the first thing that is wrong.
pub(super) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8], allowed: &str) -> Result<T, Error> {
    let wrong = |pointer: String, error: &serde_json::Error| {
        Error::Invalid(vec![FieldError {
            pointer,
            detail: format!("is not valid: {error}; allowed: {allowed}"),
        }])
    };
    let mut json = serde_json::Deserializer::from_slice(body);
    let Object(given) =
        serde_path_to_error::deserialize(&mut json).map_err(|error| wrong(pointer(error.path()), error.inner()))?;
    json.end().map_err(|error| wrong(String::new(), &error))?;
    Ok(given)
}

/// A path as a JSON pointer (RFC 6901).
fn pointer(path: &Path) -> String {
    let steps = path.iter().map(|step| match step {
        Segment::Seq { index } => format!("/{index}"),
        Segment::Map { key } => format!("/{}", key.replace('~', "~0").replace('/', "~1")),
        Segment::Enum { .. } | Segment::Unknown => String::new(),
    });
    steps.collect()
}

async fn within(time: Duration, body: impl Future<Output = Result<Bytes, Error>>) -> Result<Bytes, Error> {
    tokio::time::timeout(time, body)
        .await
        .unwrap_or(Err(Error::BodyTimeout))
}

fn announced(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// A body that came in one piece, as most do, is not copied.
async fn collect(mut payload: Payload, limit: usize, announced: usize) -> Result<Bytes, Error> {
    let first = next(&mut payload).await?.unwrap_or_default();
    if first.len() > limit {
        return Err(Error::BodyTooLarge(limit));
    }
    let Some(second) = next(&mut payload).await? else {
        return Ok(first);
    };
    let mut whole = BytesMut::with_capacity(announced.max(first.len() + second.len()));
    whole.extend_from_slice(&first);
    let mut piece = second;
    loop {
        if whole.len() + piece.len() > limit {
            return Err(Error::BodyTooLarge(limit));
        }
        whole.extend_from_slice(&piece);
        piece = match next(&mut payload).await? {
            Some(piece) => piece,
            None => return Ok(whole.freeze()),
        };
    }
}

async fn next(payload: &mut Payload) -> Result<Option<Bytes>, Error> {
    payload.next().await.transpose().map_err(|error: PayloadError| {
        tracing::debug!(%error, "a request body broke off");
        Error::BodyBroken
    })
}

/// `application/json`, in UTF-8 if it says so, without content coding.
fn is_plain_json(headers: &HeaderMap) -> Result<(), Error> {
    if !only(headers, &header::CONTENT_TYPE).is_some_and(says_json) {
        return Err(Error::NotJson);
    }
    is_plain(headers)
}

/// Without content coding.
fn is_plain(headers: &HeaderMap) -> Result<(), Error> {
    let identity = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    if headers.get_all(header::CONTENT_ENCODING).all(identity) {
        Ok(())
    } else {
        Err(Error::Encoded)
    }
}

fn says_json(value: &HeaderValue) -> bool {
    let Ok(text) = value.to_str() else { return false };
    let mut fields = text.split(';').map(str::trim);
    let is_json = fields
        .next()
        .is_some_and(|media| media.eq_ignore_ascii_case("application/json"));
    is_json
        && fields
            .filter_map(|parameter| parameter.split_once('='))
            .all(|(name, value)| {
                !name.trim().eq_ignore_ascii_case("charset")
                    || value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
            })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_in_a_body_is_named_by_its_place() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Given {
            #[allow(dead_code)]
            happened: Option<Vec<bool>>,
        }
        let places = |text: &str| match parse::<Given>(text.as_bytes(), "{\"happened\"}") {
            Err(Error::Invalid(errors)) => errors.into_iter().map(|error| (error.pointer, error.detail)).collect(),
            other => panic!("{text}: {other:?}"),
        };
        for (text, place, says) in [
            (r#"{"happened": [true, "no"]}"#, "/happened/1", "string \"no\""),
            (r#"{"hapened": []}"#, "/hapened", "unknown field `hapened`"),
            (r#"{"happened": []} x"#, "", "trailing characters"),
            ("", "", "EOF"),
            ("[[true]]", "", "expected an object"),
        ] {
            let told: Vec<(String, String)> = places(text);
            let [(pointer, detail)] = &told[..] else {
                panic!("{told:?}")
            };
            assert_eq!(pointer, place, "{detail}");
            assert!(
                detail.contains(says) && detail.ends_with("allowed: {\"happened\"}"),
                "{detail}"
            );
        }
    }

    #[test]
    fn only_json_in_utf_8_counts_as_json() {
        let says = |text: &'static str| says_json(&HeaderValue::from_static(text));
        for good in [
            "application/json",
            "Application/JSON; charset=UTF-8",
            "application/json;charset=\"utf-8\"",
            "application/json; x=y",
        ] {
            assert!(says(good), "{good}");
        }
        for bad in [
            "",
            "text/plain",
            "application/jsonx",
            "application/json; charset=latin1",
            "application/x-www-form-urlencoded",
        ] {
            assert!(!says(bad), "{bad}");
        }
    }
}
