//! Parameters that several operations share. The derive reads the fields; what a request sends is parsed by hand, so
//! that every error names its place.
#![expect(dead_code, reason = "the fields describe parameters, and nothing holds them")]

use utoipa::IntoParams;
use utoipa::openapi::path::Parameter;
use utoipa::openapi::{RefOr, Schema};

/// The id of a request; of every operation.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
struct RequestId {
    /// Your id for this request, 1 to 128 letters, digits or `-_.:~+/=`; any other value is replaced. The response
    /// repeats it.
    #[param(rename = "X-Request-Id", required = false)]
    id: String,
}

/// Removes the format of a number: the server reads larger ones than `int32` or `int64`, up to the maximum that is named.
pub(super) fn without_format(parameter: &mut RefOr<Parameter>) {
    if let RefOr::T(Parameter {
        schema: Some(RefOr::T(Schema::Object(schema))),
        ..
    }) = parameter
    {
        schema.format = None;
    }
}

pub(super) fn request_id() -> Vec<Parameter> {
    RequestId::into_params(|| None)
}

/// The acting user, of a route that acts for one user.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(in crate::http) struct ActingUser {
    // Non-ASCII letters are accepted as UTF-8, which the schema of a header cannot express.
    /// The acting user, for a caller that is a service (`auth.mode` `none` or `api_key`). With `none`, absent means
    /// `local`; a service that reads may omit it to see its whole tenant.
    #[param(
        rename = "X-Gavel-User",
        required = false,
        min_length = 1,
        max_length = 256,
        pattern = "^[!-~]{1,256}$"
    )]
    user: String,
}

/// The user whose rows are returned.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(in crate::http) struct RowsOfUser {
    /// The user whose rows are returned, for a caller that is a service (`auth.mode` `none` or `api_key`). Absent:
    /// those of the whole tenant. A user may name only themselves.
    #[param(
        rename = "X-Gavel-User",
        required = false,
        min_length = 1,
        max_length = 256,
        pattern = "^[!-~]{1,256}$"
    )]
    user: String,
}

/// A key and a trace context, of a route that may act.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(in crate::http) struct Acting {
    /// Makes a retry safe. For 24 h the same key and body return the stored response (`Idempotency-Replayed: true`),
    /// another body gets 422, and while the first request is running 409. Keys of different callers, users and routes
    /// are different keys.
    #[param(
        rename = "Idempotency-Key",
        required = false,
        min_length = 1,
        max_length = 255,
        pattern = "^[!-~]{1,255}$"
    )]
    key: String,
    /// W3C trace context, passed on to MCP servers; an invalid one is ignored.
    #[param(rename = "traceparent", required = false)]
    trace: String,
}

/// A key, of a route that is idempotent even without one.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(in crate::http) struct KeyOfAnswer {
    /// For 24 h another body under the same key gets 422. Repeating the request changes nothing, with or without a
    /// key, and returns the current state.
    #[param(
        rename = "Idempotency-Key",
        required = false,
        min_length = 1,
        max_length = 255,
        pattern = "^[!-~]{1,255}$"
    )]
    key: String,
}

/// How long the caller wants to wait.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(in crate::http) struct Prefer {
    /// `respond-async` or `wait=N` (RFC 7240).
    #[param(rename = "Prefer", required = false)]
    prefer: String,
}

/// Where a reader of events continues.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(in crate::http) struct LastEvent {
    /// The id of the last event received; the events after it follow.
    #[param(
        rename = "Last-Event-ID",
        required = false,
        pattern = "^[0-9]{1,18}([.][0-9]{1,18}){0,15}$"
    )]
    id: String,
}

/// As [`LastEvent`], for clients that cannot set headers.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct AfterEvent {
    /// The id of the last event received; the events after it follow.
    #[param(pattern = "^[0-9]{1,18}([.][0-9]{1,18}){0,15}$")]
    after: Option<String>,
}

/// A project.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(in crate::http) struct ProjectPath {
    /// The project; `default` contains the agents from files.
    project: String,
}

/// An agent of a project.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(in crate::http) struct AgentPath {
    /// The agent's name.
    agent: String,
}

/// A version of an agent.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(in crate::http) struct VersionPath {
    /// 1, 2, 3 …
    version: String,
}

/// A run.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(in crate::http) struct RunPath {
    /// The run's id.
    id: String,
}

/// A page of a list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct Paging {
    /// Rows of a page.
    #[param(minimum = 1, maximum = 1000, default = 50, required = false)]
    page_size: u32,
    /// `next_page_token` of the previous page; valid only with the same filter and order.
    page_token: Option<String>,
}

/// As [`Paging`], in camelCase.
#[derive(IntoParams)]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
pub(in crate::http) struct CamelPaging {
    /// Rows of a page.
    #[param(minimum = 1, maximum = 1000, default = 50, required = false)]
    page_size: u32,
    /// `nextPageToken` of the previous page; valid only with the same filter and order.
    page_token: Option<String>,
}

/// The order of most lists.
pub(in crate::http) const LATEST_FIRST: &str = "`created_at desc` (the default) or `created_at`.";
/// The order of what waits for a person.
pub(in crate::http) const OLDEST_FIRST: &str = "`created_at` (the default) or `created_at desc`.";

/// What `filter` of a list with these fields accepts.
pub(in crate::http) fn filter(fields: &str) -> String {
    format!(
        "Conditions joined by `AND`: field, `=`, `!=`, `<`, `<=`, `>` or `>=`, value. Strings are in double quotes; one \
         that ends in `*` is a prefix. Fields: {fields}."
    )
}
