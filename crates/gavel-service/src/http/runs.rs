//! Runs of agents: trigger, get, list, cancel, resume.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::time::Duration;

use chrono_tz::Tz;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::request_body::RequestBodyBuilder;

use crate::api::events::RunEvent;
use crate::api::problem::FieldError;
use crate::api::runs::{AgentRun, RunPage};
use crate::domain::agent_run::{MOST_TIME, RunStatus};
use crate::domain::budget::{Exceeded, Share};
use crate::domain::definition::strict_json;
use crate::domain::ids::{ActionId, ProjectId, RunId, UserId};
use crate::domain::text;
use crate::http::agents::Agent;
use crate::http::answer::{Json, Reply, Started};
use crate::http::body::{self, Media};
use crate::http::error::{AgentProblem, Error, Problem};
use crate::http::headers::Patience;
use crate::http::openapi::lines::{Union, line};
use crate::http::openapi::{About, header, in_query, string};
use crate::http::query::{Fields, Parameters};
use crate::http::request::{Acting, Ctx, Id, Key, List, Meta, Query, Request, Room, Take, User};
use crate::http::routes::operations;
use crate::http::spelling::{self, Spelling};
use crate::http::stream::{After, Failed, Framing, Lines, Out, Silent, Stream};
use crate::surfaces::agents::{self, Trigger};
use crate::surfaces::request::NAME_OF_ZONE;
use crate::surfaces::runs::{Begun, Resume, Watch};

operations! {
    triggerAgent = trigger: [Forbidden, InvalidDefinition];
    listRuns = list: [];
    getRun = get: [];
    watchRun = follow: [];
    cancelRun = cancel: [Forbidden, OutcomeUnrecorded, RunUnreadable];
    resumeRun = resume:
        [Forbidden, NotPaused, PartOfRun, StepLimitExceeded, DeadlinePassed, CallsInDoubt, TooManySessions];
}

/// Runs an agent.
///
/// Waits until the run has ended. With `Prefer: respond-async` the run is queued and answered at once, with
/// `Prefer: wait=N` after at most N seconds. The run reports its outcome: 200 means that it has ended, not that it
/// succeeded. A client that disconnects does not cancel it.
#[utoipa::path(
    post,
    path = "/api/projects/{project}/agents/{agent}/trigger",
    responses(
        (status = 200, description = "The run, which has ended."),
        (status = 202, description = "The run, which is still in progress; `Location` names it."),
    )
)]
pub(super) async fn trigger(
    ctx: Ctx,
    inputs: agents::Inputs,
    Query(timing): Query<Timing>,
    patience: Patience,
    User(user): User,
    Id(agent): Id<Agent>,
    Meta(meta): Meta,
) -> Result<Started<AgentRun>, Error> {
    let trigger = Trigger {
        project: agent.project,
        agent: agent.name,
        inputs,
        timeout: timing.timeout,
        time_zone: timing.time_zone,
        meta: meta.background(patience == Patience::None),
    };
    let begun = ctx.agents.trigger(&ctx.caller, user, trigger).await?;
    wait(&ctx, begun, patience).await
}

/// Resumes a run that is paused, or that failed since its processes were lost.
///
/// The run continues with a fresh budget of steps and time, at most 500 steps over all resumes for an agent with a limit
/// of its own. `attempts` lists what came before.
#[utoipa::path(
    post,
    path = "/api/runs/{id}/resume",
    responses(
        (status = 200, description = "The run, which has ended."),
        (status = 202, description = "The run, which is still in progress; `Location` names it."),
    )
)]
pub(super) async fn resume(
    ctx: Ctx,
    Settled(settled): Settled,
    Query(TimeLimit(timeout)): Query<TimeLimit>,
    patience: Patience,
    Acting(user): Acting,
    Id(id): Id<RunId>,
    Meta(meta): Meta,
) -> Result<Started<AgentRun>, Error> {
    let resume = Resume {
        settled,
        timeout,
        meta: meta.background(patience == Patience::None),
    };
    let begun = ctx.runs.resume(&ctx.caller, user, id, resume).await?;
    wait(&ctx, begun, patience).await
}

/// Lists the runs of a project.
///
/// Latest first. Without a condition on `parent_run_id`, only runs that no other run called. A user sees only their own.
#[utoipa::path(get, path = "/api/projects/{project}/runs")]
pub(super) async fn list(
    ctx: Ctx,
    Acting(user): Acting,
    List(query, _): List<RunPage>,
    Id(project): Id<ProjectId>,
) -> Result<Json<RunPage>, Error> {
    let page = ctx.agents.runs(&ctx.caller, user.as_ref(), &project, query).await?;
    Ok(Json(page.into()))
}

/// Reads one run.
///
/// A run of another tenant or user answers 404, like a missing one.
#[utoipa::path(get, path = "/api/runs/{id}")]
pub(super) async fn get(ctx: Ctx, Acting(user): Acting, Id(id): Id<RunId>) -> Result<Json<AgentRun>, Error> {
    Ok(Json(ctx.runs.get(&ctx.caller, user.as_ref(), id).await?))
}

/// Cancels a run.
///
/// Also cancels the runs that it called. A run that has ended remains unchanged.
#[utoipa::path(
    post,
    path = "/api/runs/{id}/cancel",
    responses(
        (status = 200, description = "The run has ended.", headers(("Location"))),
        (
            status = 202,
            description = "The run ends when the process that executes it receives the cancellation.",
            headers(("Location"))
        ),
    )
)]
pub(super) async fn cancel(
    ctx: Ctx,
    Acting(user): Acting,
    Key(key): Key,
    Id(id): Id<RunId>,
) -> Result<Reply<AgentRun>, Error> {
    let run = ctx.runs.cancel(&ctx.caller, user.as_ref(), id, key.as_ref()).await?;
    // A run in progress ends when its worker receives the cancellation.
    Ok(reply(run.status.has_ended(), run))
}

fn reply(rests: bool, run: AgentRun) -> Reply<AgentRun> {
    let path = format!("/api/runs/{}", run.id);
    Reply::current(rests, run).at(path)
}

/// Returns the run after it has ended, or when the caller's waiting time is exhausted.
async fn wait(ctx: &Ctx, mut begun: Begun, patience: Patience) -> Result<Started<AgentRun>, Error> {
    let (runs, id) = (&ctx.runs, begun.run);
    let run = patience.wait_or(runs.wait(&ctx.caller, &mut begun), runs.get(&ctx.caller, None, id));
    // The run exists and may have had effects: if it cannot be read now, the request must not be sent again.
    let run = run.await.map_err(|error| runs.unreadable(id, error))?;
    let rests = run.status.has_ended() || run.status == RunStatus::AwaitingConfirmation;
    Ok(Started::new(reply(rests, run), Some(&begun), patience))
}

/// The agent's inputs by name, or the text of an agent with one text input.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes what `inputs` reads")]
enum Inputs {
    Named(NamedInputs),
    Text(InputText),
}

/// The agent's inputs by name, as in its definition.
#[derive(ToSchema)]
#[schema(value_type = Object)]
#[expect(dead_code, reason = "describes what `inputs` reads")]
struct NamedInputs(Value);

/// The text, for an agent with one text input.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `inputs` reads")]
struct InputText(String);

/// For each in-doubt call, whether it had its effect.
pub(super) struct Settled(BTreeMap<ActionId, bool>);

impl Take for Settled {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        let body = request.arriving().json().await?;
        settled(request.keep(body)).map(Self)
    }

    fn describe(about: &mut About<'_>) {
        let text = "The outcomes of in-doubt calls; `{}` if there are none.";
        about.json::<SettledBody>(text, "{}", true);
    }
}

/// The body of `POST /api/runs/{id}/resume`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Settled)]
struct SettledBody {
    /// For each in-doubt call, by its `action_id`: whether it had its effect.
    #[serde(default)]
    #[schema(value_type = BTreeMap<CallId, bool>, required = false)]
    settled: BTreeMap<String, bool>,
}

/// The `action_id` of a call.
#[derive(ToSchema)]
#[schema(value_type = String, format = "uuid")]
#[expect(dead_code, reason = "describes the keys of `settled`")]
struct CallId(String);

/// The time limit of a run that is resumed.
pub(super) struct TimeLimit(Option<Duration>);

/// The time limit of a run, and the time zone of its user.
pub(super) struct Timing {
    timeout: Option<Duration>,
    time_zone: Option<Tz>,
}

impl Parameters for TimeLimit {
    fn read(fields: &mut Fields<'_>) -> Self {
        let (about, most) = (
            "Seconds, in place of the definition's limit.",
            MOST_TIME.as_secs() as u32,
        );
        let seconds = fields.up_to("timeout_s", about, most, None);
        Self(seconds.map(|seconds| Duration::from_secs(seconds.into())))
    }
}

impl Parameters for Timing {
    fn read(fields: &mut Fields<'_>) -> Self {
        let TimeLimit(timeout) = TimeLimit::read(fields);
        let zone = "The IANA name of the user's time zone, such as `Europe/Berlin`. Absent: the agent learns that it is unknown.";
        let zone = || in_query(zone, string());
        Self {
            timeout,
            time_zone: fields.take("time_zone", zone, NAME_OF_ZONE, |name| name.parse().ok()),
        }
    }
}

impl Take for Patience {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        Self::of(request.http.headers())
    }

    fn describe(about: &mut About<'_>) {
        about.parameter(header("Prefer", "`respond-async` or `wait=N` (RFC 7240).", string()));
    }
}

/// Parses the body of `POST /api/runs/{id}/resume`. A call that is settled twice is an error, even under different
/// spellings of its id.
fn settled(given: &[u8]) -> Result<BTreeMap<ActionId, bool>, Error> {
    // serde would take the last of two equal names.
    strict_json(given).map_err(|error| Error::invalid("", format!("is not valid: {error}")))?;
    let given: SettledBody = body::parse(given)?;
    let (mut settled, mut errors) = (BTreeMap::new(), Vec::new());
    for (key, happened) in given.settled {
        let pointer = || format!("/settled/{}", text::prefix(&key, 64));
        match ActionId::parse(&key) {
            None => errors.push(FieldError::new(pointer(), "is not the id of a call")),
            Some(id) if settled.insert(id, happened).is_some() => {
                errors.push(FieldError::new(pointer(), "is given more than once"));
            }
            Some(_) => {}
        }
    }
    match errors.is_empty() {
        true => Ok(settled),
        false => Err(errors.into()),
    }
}

impl Take for agents::Inputs {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        let (body, media) = request.arriving().input().await?;
        inputs(request.keep(body), media)
    }

    fn describe(about: &mut About<'_>) {
        let named = ContentBuilder::new()
            .schema(Some(about.schema::<Inputs>()))
            .example(Some(json!({"objective": "Where is the rate limit applied?"})));
        let text = ContentBuilder::new().schema(Some(about.schema::<InputText>()));
        let body = RequestBodyBuilder::new()
            .description(Some(
                "The agent's inputs by name. An agent with one text input also accepts the text alone, as text/plain or as \
                 a JSON string. An agent without inputs needs no body. At most 1 MiB.",
            ))
            .content("application/json", named.build())
            .content("text/plain", text.build());
        about.body(body);
    }
}

/// The agent's inputs from the body: a JSON object of inputs, a text, a JSON string, or nothing.
fn inputs(body: &[u8], media: Media) -> Result<agents::Inputs, Error> {
    let invalid = |detail: String| Error::invalid("", detail);
    match media {
        _ if body.is_empty() => return Ok(agents::Inputs::Named(Map::new())),
        Media::Json => {}
        Media::Text => {
            let text = std::str::from_utf8(body).map_err(|error| invalid(format!("is not UTF-8: {error}")))?;
            return Ok(agents::Inputs::Text(text.to_owned()));
        }
    }
    match strict_json(body) {
        Ok(Value::Object(inputs)) => Ok(agents::Inputs::Named(inputs)),
        Ok(Value::String(text)) => Ok(agents::Inputs::Text(text)),
        Ok(_) => Err(invalid(
            "must be a JSON object of the agent's inputs by name, or a JSON string for an agent that takes one text"
                .to_owned(),
        )),
        Err(error) => Err(invalid(format!("is not JSON: {error}"))),
    }
}

line! {
    /// A line of a run's events: an event, or the problem that ends the stream.
    RunLine = Union::default().and::<Line<'_>>("Run").and::<Failed<Problem<'_>>>("").and::<Silent>("")
}

line! {
    /// A line of the events of a run of a thread, in camelCase.
    AgentRunLine = Union::default().and_camel::<Line<'_>>("ThreadRun").and::<Failed<AgentProblem<'_>>>("Agent").and::<Silent>("")
}

/// Watches the events of a run.
///
/// From the first event, or from the one after `Last-Event-ID`, until the run ends. The last event is `end`; a later
/// request gets 204. Events of the runs that it called are among them, in the order in which they happened, under their
/// own `run_id`. The replica that executes the run also sends partial text (`delta`); all replicas send the whole text
/// in `turn`.
#[utoipa::path(get, path = "/api/runs/{id}/events")]
pub(crate) async fn follow(
    ctx: Ctx,
    Acting(user): Acting,
    after: After<u64>,
    Room(room): Room,
    Id(run): Id<RunId>,
    form: Framing,
) -> Result<Option<Stream<RunLines<RunLine>>>, Error> {
    watch(ctx, user, after, room, run, form).await
}

pub(super) async fn watch<L>(
    ctx: Ctx,
    user: Option<UserId>,
    after: After<u64>,
    room: Result<Share, Exceeded>,
    run: RunId,
    form: Framing,
) -> Result<Option<Stream<RunLines<L>>>, Error> {
    let (share, after) = (room?, after.place.unwrap_or_default());
    let watch = ctx.runs.watch(&ctx.caller, user.as_ref(), run, after).await?;
    if ctx.runs.is_reported(&ctx.caller, run, after).await? {
        return Ok(None);
    }
    Ok(Some(Stream::new(form, Some(share), RunLines(watch, PhantomData))))
}

/// The events of a run as lines of this type, which are spelled as their route is.
pub(crate) struct RunLines<L>(Watch, PhantomData<L>);

/// A line: the event, and its id for NDJSON readers.
#[derive(Serialize, ToSchema)]
struct Line<'a> {
    /// The position of this event in the stream.
    id: &'a str,
    #[serde(flatten)]
    event: &'a RunEvent,
}

impl<L: ToSchema> Lines for RunLines<L> {
    const RESUMABLE: bool = true;
    type Line = L;

    async fn next(&mut self, out: &mut Out<'_>) -> Result<ControlFlow<()>, Error> {
        let Some(placed) = self.0.next().await? else {
            return Ok(ControlFlow::Break(()));
        };
        let id = placed.number.to_string();
        let line = Line {
            id: &id,
            event: &placed.event,
        };
        match Spelling::of(out.exchange.route) {
            Spelling::Snake => out.form.object(Some(&id), &line, out.bytes),
            Spelling::Camel => out.form.object(Some(&id), &spelling::camel(&line), out.bytes),
        }
        Ok(ControlFlow::Continue(()))
    }
}
