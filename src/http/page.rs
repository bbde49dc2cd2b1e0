//! Writes a page of a list as a response.

use actix_web::HttpResponse;
use actix_web::http::header;
use serde::Serialize;

use super::headers;
use super::spelling::Spelling;

/// `{KEY: [items], "next_page_token": …}`, with the token's name as the route spells it. Each item is serialized directly. An intermediate JSON value would parse
/// arguments that are kept as text again and take many times their size.
pub(super) fn list(spelling: Spelling, key: &str, items: &[impl Serialize], next: Option<&str>) -> HttpResponse {
    let print = |value: Result<String, serde_json::Error>| {
        value.unwrap_or_else(|error| unreachable!("a list serializes to JSON: {error}"))
    };
    let (items, next) = (print(serde_json::to_string(items)), print(serde_json::to_string(&next)));
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, headers::JSON))
        .insert_header((header::CACHE_CONTROL, headers::NO_STORE))
        .body(format!(
            r#"{{"{key}":{items},"{}":{next}}}"#,
            spelling.next_page_token()
        ))
}
