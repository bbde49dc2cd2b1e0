//! The problems of operations. A handler lists its own codes as `x-problems`, what it takes and answers adds others; this
//! module describes them by status, from the table of [`Code`].

use std::collections::{BTreeMap, BTreeSet};

use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::path::Operation;
use utoipa::openapi::response::Response;
use utoipa::openapi::{Header, Ref, RefOr};

use super::{ALLOW, AUTHENTICATE, RETRY_AFTER};
use crate::http::error::Code;
use crate::http::spelling::Spelling;

/// Where a handler lists its codes.
const LISTED: &str = "x-problems";

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Adds codes to those that the handler lists.
pub(crate) fn add(operation: &mut Operation, codes: &[Code]) {
    let extensions = operation.extensions.get_or_insert_default();
    let listed = extensions.entry(LISTED.to_owned()).or_insert_with(|| json!([]));
    if let Value::Array(listed) = listed {
        listed.extend(codes.iter().map(|code| json!(code)));
    }
}

/// Replaces the listed codes by responses. A status that also has a response of its own gets both contents.
pub(super) fn expand(operation: &mut Operation, spelling: Spelling) {
    let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    let codes = codes(operation);
    for code in Code::ALL.iter().filter(|code| codes.contains(code.as_str())) {
        by_status.entry(code.status()).or_default().push(*code);
    }
    for (status, codes) in by_status {
        let problem = problem(spelling, status, &codes);
        let merged = match operation.responses.responses.remove(&status.to_string()) {
            Some(RefOr::T(own)) => merge(own, problem),
            _ => problem,
        };
        let responses = &mut operation.responses.responses;
        responses.insert(status.to_string(), RefOr::T(merged));
    }
}

/// The listed codes, and the one of every route.
fn codes(operation: &mut Operation) -> BTreeSet<String> {
    let mut extensions = operation.extensions.take().unwrap_or_default();
    let listed = extensions.remove(LISTED).unwrap_or_default();
    operation.extensions = (!extensions.is_empty()).then_some(extensions);
    let listed = listed.as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut codes: BTreeSet<String> = listed.map(str::to_owned).collect();
    codes.insert(Code::MethodNotAllowed.as_str().to_owned());
    codes
}

fn merge(mut own: Response, problem: Response) -> Response {
    own.description = format!("{} Or a problem. {}", own.description, problem.description);
    own.headers.extend(problem.headers);
    own.content.extend(problem.content);
    own
}

/// The response of all codes that share `status`.
fn problem(spelling: Spelling, status: u16, codes: &[Code]) -> Response {
    let about = codes
        .iter()
        .map(|code| format!("`{}`: {}", code.as_str(), code.meaning().trim()));
    let mut response = Response::new(about.collect::<Vec<_>>().join(" "));
    let retried = |code: &Code| {
        matches!(
            code,
            Code::StillRunning | Code::TooManySessions | Code::RecordUnavailable | Code::AuthUnavailable
        )
    };
    for (name, is_set) in [
        (RETRY_AFTER, codes.iter().any(retried)),
        (AUTHENTICATE, codes.contains(&Code::Unauthenticated)),
        (ALLOW, codes.contains(&Code::MethodNotAllowed)),
    ] {
        if is_set {
            response.headers.insert(name.to_owned(), RefOr::T(Header::default()));
        }
    }
    let content = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name(spelling.problem())))
        .example(codes.first().map(|code| example(spelling, status, *code)));
    response
        .content
        .insert("application/problem+json".to_owned(), RefOr::T(content.build()));
    response
}

fn example(spelling: Spelling, status: u16, code: Code) -> Value {
    let title = actix_web::http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason());
    let mut example = json!({
        "type": "about:blank",
        "title": title.unwrap_or_default(),
        "status": status,
        "detail": code.meaning().trim(),
        "code": code.as_str(),
    });
    let id = "0199f0a1-7c2e-7d10-9f5e-3a1b2c3d4e5f";
    match spelling {
        Spelling::Snake => example["request_id"] = id.into(),
        Spelling::Camel => {
            example["requestId"] = id.into();
            example["errorClass"] = json!(code.class());
        }
    }
    example
}
