//! What a request about runs says: inputs, settled calls, its time limit, and how long the caller wants to wait.

use crate::http::patience::Patience;
use std::collections::BTreeMap;
use std::time::Duration;

use chrono_tz::Tz;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::{IntoParams, ToSchema};

use crate::api::problem::FieldError;
use crate::domain::agent_run::MOST_TIME;
use crate::domain::definition::strict_json;
use crate::domain::ids::ActionId;
use crate::domain::text;
use crate::http::about::About;
use crate::http::body::{self, Media};
use crate::http::error::Error;
use crate::http::openapi::params::{header, string};
use crate::http::query::{self, Fields, Parameters};
use crate::http::request::{Request, Take};
use crate::surfaces::agents;

/// The agent's inputs by name, or the text of an agent with one text input.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes what `inputs` reads")]
pub(crate) enum Inputs {
    Named(NamedInputs),
    Text(InputText),
}

/// The agent's inputs by name, as in its definition.
#[derive(ToSchema)]
#[schema(value_type = Object)]
#[expect(dead_code, reason = "describes what `inputs` reads")]
pub(crate) struct NamedInputs(Value);

/// The text, for an agent with one text input.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `inputs` reads")]
pub(crate) struct InputText(String);

/// For each in-doubt call, whether it had its effect.
pub(crate) struct Settled(pub(super) BTreeMap<ActionId, bool>);

impl Take for Settled {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        let body = request.arriving().json().await?;
        settled(request.keep(body)).map(Self)
    }

    fn describe(about: &mut About<'_>) {
        let text = "The outcomes of in-doubt calls; `{}` if there are none.";
        about.json::<SettledBody>(text, json!({}), true);
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
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct TimeLimit {
    /// Seconds, in place of the definition's limit.
    #[param(value_type = Option<u64>, minimum = 1, maximum = 86400)]
    pub(super) timeout_s: Option<Duration>,
}

/// The time limit of a run, and the time zone of its user.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Timing {
    /// Seconds, in place of the definition's limit.
    #[param(value_type = Option<u64>, minimum = 1, maximum = 86400)]
    pub(super) timeout_s: Option<Duration>,
    /// The IANA name of the user's time zone, such as `Europe/Berlin`. Absent: the agent learns that it is unknown.
    #[param(value_type = Option<String>)]
    pub(super) time_zone: Option<Tz>,
}

impl Parameters for TimeLimit {
    fn read(fields: &mut Fields<'_>) -> Self {
        let most = MOST_TIME.as_secs();
        let seconds = |text: &str| query::number(text).filter(|seconds| (1..=most).contains(seconds));
        let allowed = format!("a whole number from 1 to {most}");
        let timeout_s = fields.take("timeout_s", &allowed, seconds).map(Duration::from_secs);
        Self { timeout_s }
    }
}

impl Parameters for Timing {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self {
            timeout_s: TimeLimit::read(fields).timeout_s,
            time_zone: fields.take("time_zone", NAME_OF_ZONE, |name| name.parse().ok()),
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
    const FORM: &str = r#"{"settled": {ACTION_ID: true or false}}"#;
    let invalid = |pointer: String, found: &str| {
        let detail = format!("is not valid: {found}; allowed: {FORM}");
        FieldError { pointer, detail }
    };
    // serde would take the last of two equal names.
    strict_json(given).map_err(|error| Error::Invalid(vec![invalid(String::new(), &error)]))?;
    let given: SettledBody = body::parse(given, FORM)?;
    let (mut settled, mut errors) = (BTreeMap::new(), Vec::new());
    for (key, happened) in given.settled {
        let pointer = || format!("/settled/{}", text::prefix(&key, 64));
        match ActionId::parse(&key) {
            None => errors.push(invalid(pointer(), "not the id of a call")),
            Some(id) if settled.insert(id, happened).is_some() => {
                errors.push(invalid(pointer(), "a call that is given more than once"));
            }
            Some(_) => {}
        }
    }
    match errors.is_empty() {
        true => Ok(settled),
        false => Err(Error::Invalid(errors)),
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

const NAME_OF_ZONE: &str = "the IANA name of a time zone, such as \"Europe/Berlin\"";

/// Parses the time zone of a body.
pub(crate) fn time_zone(name: &str, pointer: &str) -> Result<Tz, Error> {
    name.parse()
        .map_err(|_| Error::invalid(pointer, query::found(name, NAME_OF_ZONE)))
}
