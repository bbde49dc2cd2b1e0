//! Agent definitions: `/api/projects/{project}/agents…`, and the JSON Schemas of a definition.

mod error;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderMap, HeaderValue};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use self::error::definition_error;
use super::error::{Code, Error};
use super::exchange::Exchange;
use super::headers::{self, only};
use super::openapi::params::{AgentPath, Paging, ProjectPath, VersionPath};
use super::openapi::schemas::{JsonSchema, page};
use super::page;
use super::routes::Route;
use super::spelling::Spelling;
use super::{State, body, query};
use crate::domain::definition::{Definition, Form, json_schema, json_schema_of_front_matter};
use crate::domain::ids::ProjectId;
use crate::surfaces::definitions::{AgentDetail, AgentInfo, Put, VersionDetail, VersionInfo};
use crate::surfaces::request::FieldError;

page! {
    /// A page of agents.
    AgentPage { agents: AgentInfo }
}

page! {
    /// A page of an agent's versions.
    VersionPage { versions: VersionInfo }
}

/// The state in which a definition may be put; [`expected`] reads it.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "describes parameters")]
struct Expected {
    /// The version that must be current, in double quotes, as in `ETag`.
    #[param(rename = "If-Match", required = false, pattern = "^\"[1-9][0-9]{0,17}\"$")]
    version: String,
    /// `*`: there must be no such agent yet.
    #[param(rename = "If-None-Match", required = false, pattern = "^[*]$")]
    none: String,
}

/// Lists the agents of a project.
///
/// Sorted by name, without the definitions. Agents from files belong to the project `default`, beside agents put there
/// through the API.
#[utoipa::path(
    get,
    path = "/api/projects/{project}/agents",
    operation_id = "listAgents",
    tag = "agents",
    params(ProjectPath, Paging),
    responses((status = 200, description = "The response.", body = AgentPage)),
    extensions(("x-problems" = json!([Code::NotFound])))
)]
pub(super) async fn list(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::Agents));
    exchange.finish(listed(&state, &request).await)
}

/// Reads one agent.
///
/// With `Accept: application/yaml`, `text/markdown` or `application/x-protobuf`, returns only the definition, in that
/// format.
#[utoipa::path(
    get,
    path = "/api/projects/{project}/agents/{agent}",
    operation_id = "getAgent",
    tag = "agents",
    params(ProjectPath, AgentPath),
    responses((
        status = 200,
        description = "The agent.",
        content(
            (AgentDetail = "application/json"),
            (String = "application/yaml"),
            (String = "text/markdown"),
            ("application/x-protobuf")
        ),
        headers(("ETag"))
    )),
    extensions(("x-problems" = json!([Code::NotFound])))
)]
pub(super) async fn get(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::Agent));
    exchange.finish(one(&state, &request).await)
}

/// Puts an agent's definition.
///
/// Requires the role `operator`: a definition decides which tools run without approval. It is checked together with the
/// other agents of its project; all errors are reported at once. Runs that have started keep the version they started
/// with.
#[utoipa::path(
    put,
    path = "/api/projects/{project}/agents/{agent}",
    operation_id = "putAgent",
    tag = "agents",
    params(ProjectPath, AgentPath, Expected),
    request_body(
        description = "A definition in any form; its name must be that of the path. At most 1 MiB.",
        content(
            (JsonSchema = "application/json"),
            (String = "application/yaml"),
            (String = "text/markdown"),
            ("application/x-protobuf")
        )
    ),
    responses(
        (
            status = 200,
            description = "A new version, or the current one if nothing changed.",
            body = AgentPut,
            headers(("ETag"))
        ),
        (status = 201, description = "A new agent.", body = AgentPut, headers(("ETag"))),
    ),
    extensions(("x-problems" = json!([
        Code::Forbidden, Code::NotFound, Code::ReadOnly, Code::TooManyAgents, Code::VersionConflict,
        Code::InvalidDefinition, Code::OutcomeUnrecorded
    ])))
)]
pub(super) async fn put(state: Data<State>, request: HttpRequest, payload: Payload) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::PutAgent));
    exchange.finish(taken(&state, &request, payload).await)
}

/// Lists the versions of an agent.
///
/// Newest first; only for agents created through the API. A version never changes.
#[utoipa::path(
    get,
    path = "/api/projects/{project}/agents/{agent}/versions",
    operation_id = "listVersions",
    tag = "agents",
    params(ProjectPath, AgentPath, Paging),
    responses((status = 200, description = "The response.", body = VersionPage)),
    extensions(("x-problems" = json!([Code::NotFound])))
)]
pub(super) async fn versions(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::Versions));
    exchange.finish(version_page(&state, &request).await)
}

/// Reads one version of an agent.
///
/// With its definition.
#[utoipa::path(
    get,
    path = "/api/projects/{project}/agents/{agent}/versions/{version}",
    operation_id = "getVersion",
    tag = "agents",
    params(ProjectPath, AgentPath, VersionPath),
    responses((status = 200, description = "The response.", body = VersionDetail)),
    extensions(("x-problems" = json!([Code::NotFound])))
)]
pub(super) async fn version(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::Version));
    exchange.finish(one_version(&state, &request).await)
}

/// Restores an earlier version.
///
/// Makes the earlier definition the current one, as a new version. Requires the role `operator`.
#[utoipa::path(
    post,
    path = "/api/projects/{project}/agents/{agent}/versions/{version}/restore",
    operation_id = "restoreVersion",
    tag = "agents",
    params(ProjectPath, AgentPath, VersionPath),
    responses((status = 200, description = "The current agent.", body = AgentPut, headers(("ETag")))),
    extensions(("x-problems" = json!([
        Code::Forbidden, Code::NotFound, Code::ReadOnly, Code::TooManyAgents, Code::VersionConflict,
        Code::InvalidDefinition, Code::OutcomeUnrecorded, Code::Overloaded
    ])))
)]
pub(super) async fn restore(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::RestoreVersion));
    exchange.finish(restored(&state, &request).await)
}

/// JSON Schema of a definition, for editors.
///
/// For the JSON and YAML forms, and for Markdown front matter. Open: no credentials are required.
#[utoipa::path(
    get,
    path = "/schemas/{schema}",
    operation_id = "getAgentSchema",
    tag = "reference",
    security(()),
    params(("schema" = String, Path, description = "`agent.schema.json` or `agent-front-matter.schema.json`.")),
    responses((
        status = 200,
        description = "The schema.",
        content_type = "application/schema+json",
        body = JsonSchema
    )),
    extensions(("x-problems" = json!([Code::NotFound])))
)]
pub(super) async fn schema(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::AgentSchema));
    let schema = match request.match_info().get("schema") {
        Some("agent.schema.json") => Ok(json_schema()),
        Some("agent-front-matter.schema.json") => Ok(json_schema_of_front_matter()),
        _ => Err(Error::NotFound),
    };
    exchange.finish(schema.map(|schema| {
        HttpResponse::Ok()
            .insert_header((
                header::CONTENT_TYPE,
                HeaderValue::from_static("application/schema+json"),
            ))
            .insert_header((header::CACHE_CONTROL, HeaderValue::from_static("max-age=3600")))
            .body(schema.to_string())
    }))
}

async fn listed(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let query = query::page(request.query_string())?;
    let directory = &state.edge.directory;
    let page = directory.page(&caller.tenant, &project(request)?, &query).await?;
    Ok(page::list(Spelling::Snake, "agents", &page))
}

async fn one(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    query::none(request.query_string())?;
    let directory = &state.edge.directory;
    let agent = directory
        .get(&caller.tenant, &project(request)?, agent(request)?)
        .await?;
    let mut response = match asked_for(request.headers()) {
        None => response(StatusCode::OK, &agent),
        Some((form, media)) => written(&agent, form, media).await?,
    };
    tag(&mut response, &agent.about);
    Ok(response)
}

/// The definition alone, in the format that `Accept` requests.
async fn written(agent: &AgentDetail, form: Form, media: &'static str) -> Result<HttpResponse, Error> {
    let (text, id) = (agent.definition.to_string(), agent.about.id.clone());
    // Parsing and writing a large definition takes long, so it runs on a blocking thread.
    let written = actix_web::web::block(move || {
        let definition = Definition::read(text.as_bytes(), Form::Json, &id);
        definition.map(|definition| definition.write(form))
    });
    let written = written.await.ok().and_then(Result::ok).ok_or(Error::Internal)?;
    Ok(HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, HeaderValue::from_static(media)))
        .insert_header((header::CACHE_CONTROL, headers::NO_STORE))
        .body(written))
}

async fn taken(state: &State, request: &HttpRequest, payload: Payload) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    query::none(request.query_string())?;
    let form = only(request.headers(), &header::CONTENT_TYPE)
        .and_then(form_of)
        .map(|(form, _)| form)
        .ok_or(Error::NoForm)?;
    let body = body::read_any(state, request, payload, &caller).await?;
    let expected = expected(request.headers())?;
    let (project, agent, now_us) = (project(request)?, agent(request)?, state.edge.runs.now_us());
    let put = state
        .edge
        .directory
        .put(&caller, &project, agent, (form, &body), expected, now_us)
        .await?;
    Ok(answer(put))
}

async fn version_page(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let query = query::page(request.query_string())?;
    let directory = &state.edge.directory;
    let page = directory
        .versions(&caller.tenant, &project(request)?, agent(request)?, &query)
        .await?;
    Ok(page::list(Spelling::Snake, "versions", &page))
}

async fn one_version(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    query::none(request.query_string())?;
    let directory = &state.edge.directory;
    let version = directory
        .version(&caller.tenant, &project(request)?, agent(request)?, number(request)?)
        .await?;
    Ok(response(StatusCode::OK, &version))
}

async fn restored(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    query::none(request.query_string())?;
    let (project, agent, version) = (project(request)?, agent(request)?, number(request)?);
    let now_us = state.edge.runs.now_us();
    let put = state
        .edge
        .directory
        .restore(&caller, &project, agent, version, now_us)
        .await?;
    Ok(answer(put))
}

/// An agent that was put, with the warnings about its definition.
#[derive(Serialize, ToSchema)]
pub(super) struct AgentPut {
    /// The current agent.
    #[serde(flatten)]
    agent: AgentDetail,
    /// Warnings about the definition, in the format of a problem's `errors`.
    #[schema(schema_with = super::openapi::schemas::field_errors)]
    warnings: Vec<FieldError>,
}

fn answer(put: Put) -> HttpResponse {
    let is_new = put.changed && put.agent.about.version == Some(1);
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let body = AgentPut {
        agent: put.agent,
        warnings: put.warnings.into_iter().map(definition_error).collect(),
    };
    let mut response = response(status, &body);
    tag(&mut response, &body.agent.about);
    response
}

/// Sets `ETag` to the version, for use in `If-Match`.
fn tag(response: &mut HttpResponse, agent: &AgentInfo) {
    if let Some(version) = agent.version
        && let Ok(value) = HeaderValue::from_str(&format!("\"{version}\""))
    {
        response.headers_mut().insert(header::ETAG, value);
    }
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

pub(super) fn project(request: &HttpRequest) -> Result<ProjectId, Error> {
    let text = request.match_info().get("project").unwrap_or_default();
    ProjectId::parse(text).map_err(|_| Error::NotFound)
}

pub(super) fn agent(request: &HttpRequest) -> Result<&str, Error> {
    request.match_info().get("agent").ok_or(Error::NotFound)
}

/// The version of the path; text that is not a number is not found.
fn number(request: &HttpRequest) -> Result<i64, Error> {
    let version = request.match_info().get("version").and_then(version_number);
    version.ok_or(Error::NotFound)
}

/// Parses the version of a tag that [`tag`] wrote.
fn as_tagged(text: &str) -> Option<i64> {
    version_number(text.strip_prefix('"')?.strip_suffix('"')?)
}

/// Parses 1, 2, 3 …; other spellings of a number are rejected.
fn version_number(text: &str) -> Option<i64> {
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
fn asked_for(headers: &HeaderMap) -> Option<(Form, &'static str)> {
    let value = only(headers, &header::ACCEPT)?;
    let first = value
        .to_str()
        .ok()?
        .split(',')
        .find(|range| !headers::is_refused(range))?;
    let (form, media) = form_of(&HeaderValue::from_str(first).ok()?)?;
    (form != Form::Json).then_some((form, media))
}

pub(super) fn response(status: StatusCode, value: &impl Serialize) -> HttpResponse {
    let text =
        serde_json::to_string(value).unwrap_or_else(|error| unreachable!("a response serializes to JSON: {error}"));
    HttpResponse::build(status)
        .insert_header((header::CONTENT_TYPE, headers::JSON))
        .insert_header((header::CACHE_CONTROL, headers::NO_STORE))
        .body(text)
}
