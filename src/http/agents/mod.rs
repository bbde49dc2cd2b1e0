//! Agent definitions: `/api/projects/{project}/agents…`, and the JSON Schemas of a definition.

mod error;
mod form;

use crate::http::request::Raw;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;
use utoipa::ToSchema;

use self::error::definition_error;
use self::form::{Expected, asked_for, expected, form_of, tag, version_number};
use super::error::{Code, Error};
use super::headers::{self, only};
use super::openapi::params::{AgentPath, Paging, ProjectPath, VersionPath};
use super::openapi::schemas::{JsonSchema, page};
use super::page;
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
pub(super) async fn list(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
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
pub(super) async fn get(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
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
pub(super) async fn put(
    Raw {
        state,
        request,
        payload,
        exchange,
    }: Raw,
) -> HttpResponse {
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
pub(super) async fn versions(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
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
pub(super) async fn version(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
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
pub(super) async fn restore(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
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
pub(super) async fn schema(
    Raw {
        state: _,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
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
    let query = query::page(Spelling::Snake, request.query_string())?;
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
    let query = query::page(Spelling::Snake, request.query_string())?;
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

pub(super) fn response(status: StatusCode, value: &impl Serialize) -> HttpResponse {
    let text =
        serde_json::to_string(value).unwrap_or_else(|error| unreachable!("a response serializes to JSON: {error}"));
    HttpResponse::build(status)
        .insert_header((header::CONTENT_TYPE, headers::JSON))
        .insert_header((header::CACHE_CONTROL, headers::NO_STORE))
        .body(text)
}
