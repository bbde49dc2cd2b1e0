//! Writes a page of a list as a response.

use actix_web::HttpResponse;
use actix_web::http::header;
use serde::Serialize;

use super::headers;
use super::spelling::Spelling;
use crate::surfaces::decisions::Page;

/// `{KEY: [items], "next_page_token": …}`, with the token's name as the route spells it. Each item is serialized
/// directly: an intermediate JSON value would parse arguments that are kept as text, and take many times their size.
pub(super) fn list<T: Serialize>(spelling: Spelling, key: &str, page: &Page<T>) -> HttpResponse {
    let print = |value: Result<String, serde_json::Error>| {
        value.unwrap_or_else(|error| unreachable!("a list serializes to JSON: {error}"))
    };
    let items = print(serde_json::to_string(&page.items));
    let next = print(serde_json::to_string(&page.next_page_token));
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, headers::JSON))
        .insert_header((header::CACHE_CONTROL, headers::NO_STORE))
        .body(format!(
            r#"{{"{key}":{items},"{}":{next}}}"#,
            spelling.next_page_token()
        ))
}
