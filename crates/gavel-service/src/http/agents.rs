//! Agent definitions: `/api/projects/{project}/agents…`, and the JSON Schemas of a definition.

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::{HttpMessage, HttpRequest, HttpResponse};
use serde::Serialize;
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::{Content, Required};
use utoipa::{PartialSchema, ToSchema};

use crate::api::agents::{AgentDetail, AgentInfo, AgentPage, VersionDetail, VersionPage};
use crate::api::problem::FieldError;
use crate::domain::definition::{Definition, Form};
use crate::domain::ids::ProjectId;
use crate::http::answer::{Answer, Json, Reply, json};
use crate::http::body::Body;
use crate::http::error::{Code, Error};
use crate::http::exchange::Exchange;
use crate::http::headers::{self, only};
use crate::http::openapi::{About, JsonSchema, header as parameter, string};
use crate::http::query;
use crate::http::request::{Ctx, Id, Named, Paged, Query, Request, Take};
use crate::http::routes::{Path, operations};
use crate::surfaces::definitions::{Put, definition_error};

operations! {
    listAgents = list: [];
    getAgent = get: [];
    putAgent = put: [];
    listVersions = versions: [];
    getVersion = version: [];
    restoreVersion = restore: [Overloaded];
}

const PROJECT: (&str, &str) = ("project", "The project; `default` contains the agents from files.");
const AGENT: (&str, &str) = ("agent", "The agent's name.");

impl Named for ProjectId {
    const SEGMENTS: &'static [(&'static str, &'static str)] = &[PROJECT];
    const MISSING: &'static str = "There is no project {project} with agents.";

    fn parse(path: &Path<'_>) -> Option<Self> {
        Self::parse(path.get("project")).ok()
    }
}

/// An agent of a project.
pub(super) struct Agent {
    pub(super) project: ProjectId,
    pub(super) name: String,
}

impl Named for Agent {
    const SEGMENTS: &'static [(&'static str, &'static str)] = &[PROJECT, AGENT];
    const MISSING: &'static str = "There is no agent {agent} in the project {project}.";

    fn parse(path: &Path<'_>) -> Option<Self> {
        Some(Self {
            project: <ProjectId as Named>::parse(path)?,
            name: path.get("agent").to_owned(),
        })
    }
}

/// The versions of an agent.
pub(super) struct Versions(Agent);

impl Named for Versions {
    const SEGMENTS: &'static [(&'static str, &'static str)] = Agent::SEGMENTS;
    const MISSING: &'static str =
        "There is no agent {agent} in the project {project} with versions; an agent from a file has none.";

    fn parse(path: &Path<'_>) -> Option<Self> {
        Agent::parse(path).map(Self)
    }
}

/// A version of an agent.
pub(super) struct Version(Agent, i64);

impl Named for Version {
    const SEGMENTS: &'static [(&'static str, &'static str)] = &[PROJECT, AGENT, ("version", "1, 2, 3 …")];
    const MISSING: &'static str =
        "There is no version {version} of an agent {agent} in the project {project}; an agent from a file has none.";

    fn parse(path: &Path<'_>) -> Option<Self> {
        Some(Self(Agent::parse(path)?, query::ordinal(path.get("version"))?))
    }
}

/// Lists the agents of a project.
///
/// Sorted by name, without the definitions. Agents from files belong to the project `default`, beside agents put there
/// through the API.
#[utoipa::path(get, path = "/api/projects/{project}/agents")]
pub(super) async fn list(
    ctx: Ctx,
    Query(Paged(query)): Query<Paged>,
    Id(project): Id<ProjectId>,
) -> Result<Json<AgentPage>, Error> {
    Ok(Json(
        ctx.directory.page(&ctx.caller.tenant, &project, &query).await?.into(),
    ))
}

/// Reads one agent.
///
/// With `Accept: application/yaml`, `text/markdown` or `application/x-protobuf`, returns only the definition, in that
/// format.
#[utoipa::path(
    get,
    path = "/api/projects/{project}/agents/{agent}",
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
    ))
)]
pub(super) async fn get(ctx: Ctx, Id(agent): Id<Agent>) -> Result<HttpResponse, Error> {
    let found = ctx.directory.get(&ctx.caller.tenant, &agent.project, &agent.name);
    let agent = found.await?;
    let mut response = match asked_for(&ctx.http) {
        None => json(StatusCode::OK, &agent),
        Some((form, media)) => written(&agent, form, media).await?,
    };
    if let Some((name, value)) = tag(&agent.about) {
        response.headers_mut().insert(name, value);
    }
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
    let written = written.await.ok().and_then(Result::ok).ok_or(Code::Internal)?;
    Ok(HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, HeaderValue::from_static(media)))
        .insert_header((header::CACHE_CONTROL, headers::NO_STORE))
        .body(written))
}

/// Puts an agent's definition.
///
/// Requires the role `operator`: a definition decides which tools run without approval. It is checked together with the
/// other agents of its project; all errors are reported at once. Runs that have started keep the version they started
/// with.
#[utoipa::path(
    put,
    path = "/api/projects/{project}/agents/{agent}",
    responses(
        (status = 200, description = "A new version, or the current one if nothing changed."),
        (status = 201, description = "A new agent."),
    )
)]
pub(super) async fn put(
    ctx: Ctx,
    definition: DefinitionBody,
    Expected(version): Expected,
    Id(agent): Id<Agent>,
) -> Result<Stored, Error> {
    let (given, now_us) = ((definition.form, &*definition.body), ctx.runs.now_us());
    let put = ctx
        .directory
        .put(&ctx.caller, &agent.project, &agent.name, given, version, now_us);
    Ok(Stored(put.await?))
}

/// Lists the versions of an agent.
///
/// Newest first; only for agents created through the API. A version never changes.
#[utoipa::path(get, path = "/api/projects/{project}/agents/{agent}/versions")]
pub(super) async fn versions(
    ctx: Ctx,
    Query(Paged(query)): Query<Paged>,
    Id(Versions(agent)): Id<Versions>,
) -> Result<Json<VersionPage>, Error> {
    let page = ctx
        .directory
        .versions(&ctx.caller.tenant, &agent.project, &agent.name, &query);
    Ok(Json(page.await?.into()))
}

/// Reads one version of an agent.
///
/// With its definition.
#[utoipa::path(get, path = "/api/projects/{project}/agents/{agent}/versions/{version}")]
pub(super) async fn version(ctx: Ctx, Id(Version(agent, number)): Id<Version>) -> Result<Json<VersionDetail>, Error> {
    let version = ctx
        .directory
        .version(&ctx.caller.tenant, &agent.project, &agent.name, number);
    Ok(Json(version.await?))
}

/// Restores an earlier version.
///
/// Makes the earlier definition the current one, as a new version. Requires the role `operator`.
#[utoipa::path(
    post,
    path = "/api/projects/{project}/agents/{agent}/versions/{version}/restore",
    responses((status = 200, description = "The current agent."))
)]
pub(super) async fn restore(ctx: Ctx, Id(Version(agent, number)): Id<Version>) -> Result<Stored, Error> {
    let now_us = ctx.runs.now_us();
    let put = ctx
        .directory
        .restore(&ctx.caller, &agent.project, &agent.name, number, now_us);
    Ok(Stored(put.await?))
}

/// An agent that was put, with the warnings about its definition.
#[derive(Serialize, ToSchema)]
pub(super) struct AgentPut {
    /// The current agent.
    #[serde(flatten)]
    agent: AgentDetail,
    /// Warnings about the definition, in the format of a problem's `errors`.
    warnings: Vec<FieldError>,
}

/// The answer to a definition that was put.
pub(super) struct Stored(Put);

impl Answer for Stored {
    fn respond(self, exchange: Exchange) -> HttpResponse {
        let Self(put) = self;
        let is_new = put.changed && put.agent.about.version == Some(1);
        let reply = Reply {
            status: if is_new { StatusCode::CREATED } else { StatusCode::OK },
            headers: tag(&put.agent.about).into_iter().collect(),
            body: AgentPut {
                agent: put.agent,
                warnings: put.warnings.into_iter().map(definition_error).collect(),
            },
        };
        reply.respond(exchange)
    }

    fn describe(about: &mut About<'_>) {
        about.answers::<AgentPut>(&["ETag"]);
        about.problems(&[
            Code::Forbidden,
            Code::ReadOnly,
            Code::TooManyAgents,
            Code::VersionConflict,
            Code::InvalidDefinition,
            Code::OutcomeUnrecorded,
        ]);
    }
}

/// A definition as it was sent.
pub(super) struct DefinitionBody {
    form: Form,
    body: Body,
}

impl Take for DefinitionBody {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        let (form, _) = form_of(request.http.content_type()).ok_or_else(|| {
            Error::new(
                Code::UnsupportedMediaType,
                "A definition must be application/json, application/yaml, text/markdown or application/x-protobuf; set \
                 Content-Type.",
            )
        })?;
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
pub(super) struct Expected(Option<i64>);

impl Take for Expected {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        let headers = request.http.headers();
        if headers.contains_key(header::IF_NONE_MATCH) {
            let any = only(headers, &header::IF_NONE_MATCH).is_some_and(|value| value.as_bytes() == b"*");
            return match any {
                true => Ok(Self(Some(0))),
                false => Err(Error::header("If-None-Match", "must be *")),
            };
        }
        if !headers.contains_key(header::IF_MATCH) {
            return Ok(Self(None));
        }
        let problem = "must be a version in double quotes, as in ETag";
        let version = headers::version(headers, &header::IF_MATCH);
        version
            .map(|version| Self(Some(version)))
            .ok_or_else(|| Error::header("If-Match", problem))
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
fn tag(agent: &AgentInfo) -> Option<(HeaderName, HeaderValue)> {
    let tag = HeaderValue::try_from(format!("\"{}\"", agent.version?)).ok()?;
    Some((header::ETAG, tag))
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

fn form_of(media: &str) -> Option<(Form, &'static str)> {
    let found = MEDIA.iter().find(|(name, _)| name.eq_ignore_ascii_case(media))?;
    Some((found.1, found.0))
}

/// A format other than JSON that `Accept` names first; the JSON response contains more than the definition.
fn asked_for(request: &HttpRequest) -> Option<(Form, &'static str)> {
    let asked = form_of(headers::accepted(request).first()?);
    asked.filter(|(form, _)| *form != Form::Json)
}
