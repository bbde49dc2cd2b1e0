//! What a request about runs says: inputs, settled calls, options and how long the caller wants to wait.
//!
//! The types that derive a schema describe bodies that are read by hand, so that every error names its place.

use std::collections::BTreeMap;
use std::time::Duration;

use actix_web::http::header::{HeaderMap, HeaderName};
use chrono_tz::Tz;
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use crate::domain::agent_run::MOST_TIME;
use crate::domain::definition::strict_json;
use crate::domain::ids::ActionId;
use crate::domain::text;
use crate::http::body::Media;
use crate::http::error::Error;
use crate::http::query;
use crate::surfaces::agents;
use crate::surfaces::request::FieldError;

const PREFER: HeaderName = HeaderName::from_static("prefer");

/// The agent's inputs by name, or the text of an agent with one text input.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes what `inputs` reads")]
pub(in crate::http) enum Inputs {
    Named(NamedInputs),
    Text(InputText),
}

/// The agent's inputs by name, as in its definition.
#[derive(ToSchema)]
#[schema(value_type = Object)]
#[expect(dead_code, reason = "describes what `inputs` reads")]
pub(in crate::http) struct NamedInputs(Value);

/// The text, for an agent with one text input.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `inputs` reads")]
pub(in crate::http) struct InputText(String);

/// The body of `POST /api/runs/{id}/resume`.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes what `settled` reads")]
pub(in crate::http) struct Settled {
    /// For each in-doubt call, by its `action_id`: whether it had its effect.
    #[schema(required = false)]
    settled: BTreeMap<CallId, bool>,
}

/// The `action_id` of a call.
#[derive(ToSchema)]
#[schema(value_type = String, format = "uuid")]
#[expect(dead_code, reason = "describes what `settled` reads")]
pub(in crate::http) struct CallId(String);

/// The time limit of a run; [`options`] reads it.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes a parameter")]
pub(in crate::http) struct Timeout {
    /// Seconds, in place of the definition's limit.
    #[param(minimum = 1, maximum = 86400)]
    timeout_s: Option<u64>,
}

/// The time zone of a run's user; [`options`] reads it.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes a parameter")]
pub(in crate::http) struct TimeZone {
    /// The IANA name of the user's time zone, such as `Europe/Berlin`. Absent: the agent learns that it is unknown.
    time_zone: Option<String>,
}

/// How long the caller wants to wait (RFC 7240).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Patience {
    /// Until the run has ended.
    All,
    /// `wait=N`: at most this long.
    Some(Duration),
    /// `respond-async`: not at all.
    None,
}

impl Patience {
    pub(in crate::http) fn of(headers: &HeaderMap) -> Result<Self, Error> {
        let mut patience = Self::All;
        for value in headers.get_all(PREFER) {
            let text = value
                .to_str()
                .map_err(|_| Error::InvalidHeader("Prefer", "is not ASCII"))?;
            for preference in text.split([',', ';']).map(str::trim) {
                let (name, value) = preference.split_once('=').unwrap_or((preference, ""));
                if name.trim().eq_ignore_ascii_case("respond-async") {
                    patience = Self::None;
                } else if name.trim().eq_ignore_ascii_case("wait") && patience != Self::None {
                    let seconds = query::number(value.trim().trim_matches('"'));
                    let seconds = seconds.ok_or(Error::InvalidHeader("Prefer", "wait must be whole seconds"))?;
                    patience = Self::Some(Duration::from_secs(seconds));
                }
            }
        }
        Ok(patience)
    }

    /// Waits this long. `None` if it was not long enough.
    pub(in crate::http) async fn wait<T, E>(self, until: impl Future<Output = Result<T, E>>) -> Result<Option<T>, E> {
        match self {
            Self::All => until.await.map(Some),
            Self::Some(most) => tokio::time::timeout(most, until).await.ok().transpose(),
            Self::None => Ok(None),
        }
    }

    pub(in crate::http) const fn applied(self) -> Option<&'static str> {
        match self {
            Self::All => None,
            Self::Some(_) => Some("wait"),
            Self::None => Some("respond-async"),
        }
    }
}

/// Parses the body of `POST /api/runs/{id}/resume`: `settled` reports for each in-doubt call whether it happened. A
/// call that is settled twice is an error, even under different spellings of its id.
pub(super) fn settled(body: &[u8]) -> Result<BTreeMap<ActionId, bool>, Error> {
    const ALLOWED: &str = r#"{"settled": {ACTION_ID: true or false}}"#;
    let invalid = |pointer: String, found: &str| {
        let detail = format!("is not valid: {found}; allowed: {ALLOWED}");
        FieldError { pointer, detail }
    };
    let refused = |error: FieldError| Err(Error::Invalid(vec![error]));
    let mut fields = match strict_json(body) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) => return refused(invalid(String::new(), "it is not an object")),
        Err(error) => return refused(invalid(String::new(), &error)),
    };
    let given = fields.remove("settled");
    let mut errors: Vec<_> = fields
        .keys()
        .map(|name| invalid(format!("/{}", text::prefix(name, 64)), "an unknown field"))
        .collect();
    let mut settled = BTreeMap::new();
    match given {
        None => {}
        Some(Value::Object(given)) => {
            for (key, happened) in given {
                let pointer = || format!("/settled/{}", text::prefix(&key, 64));
                match (ActionId::parse(&key), happened) {
                    (None, _) => errors.push(invalid(pointer(), "not the id of a call")),
                    (Some(id), Value::Bool(happened)) => {
                        if settled.insert(id, happened).is_some() {
                            errors.push(invalid(pointer(), "a call that is given more than once"));
                        }
                    }
                    (Some(_), _) => errors.push(invalid(pointer(), "neither true nor false")),
                }
            }
        }
        Some(_) => errors.push(invalid("/settled".to_owned(), "it is not an object")),
    }
    if errors.is_empty() {
        Ok(settled)
    } else {
        Err(Error::Invalid(errors))
    }
}

/// The agent's inputs from the body: a JSON object of inputs, a text, a JSON string, or nothing.
pub(super) fn inputs(body: &[u8], media: Media) -> Result<agents::Inputs, Error> {
    let invalid = |detail: String| {
        Error::Invalid(vec![FieldError {
            pointer: String::new(),
            detail,
        }])
    };
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

/// Parses `timeout_s`, whole seconds from 1 to a day, and `time_zone`, an IANA name, if they are allowed.
pub(super) fn options(text: &str, allowed: &str) -> Result<(Option<Duration>, Option<Tz>), Error> {
    let (mut timeout, mut zone, mut errors) = (None, None, Vec::new());
    for (name, value) in url::form_urlencoded::parse(text.as_bytes()) {
        let most = MOST_TIME.as_secs();
        let detail = if !allowed.split(", ").any(|known| known == name) {
            format!("is not a known parameter; allowed is {allowed}")
        } else if (name == "timeout_s" && timeout.is_some()) || (name == "time_zone" && zone.is_some()) {
            "is given more than once".to_owned()
        } else if name == "time_zone" {
            match value.parse() {
                Ok(known) => {
                    zone = Some(known);
                    continue;
                }
                Err(_) => query::found(&value, NAME_OF_ZONE),
            }
        } else if let Some(seconds) = query::number(&value).filter(|seconds| (1..=most).contains(seconds)) {
            timeout = Some(Duration::from_secs(seconds));
            continue;
        } else {
            query::found(&value, &format!("a whole number from 1 to {most}"))
        };
        errors.push(FieldError {
            pointer: name.into_owned(),
            detail,
        });
    }
    if errors.is_empty() {
        Ok((timeout, zone))
    } else {
        Err(Error::Invalid(errors))
    }
}

const NAME_OF_ZONE: &str = "the IANA name of a time zone, such as \"Europe/Berlin\"";

/// Parses the time zone of a body.
pub(in crate::http) fn time_zone(name: &str, pointer: &str) -> Result<Tz, Error> {
    name.parse().map_err(|_| {
        Error::Invalid(vec![FieldError {
            pointer: pointer.to_owned(),
            detail: query::found(name, NAME_OF_ZONE),
        }])
    })
}
