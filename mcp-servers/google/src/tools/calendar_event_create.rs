//! `calendar_event_create`

use std::sync::Arc;

use chrono::Utc;
use gavel_mcp_base::{Answer, Call, Class, Code as Common, Fault, Kind, Tool, ToolError, Whole, invalid, key_reused};
use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::of_arguments;
use crate::address::{self, Given, Recipient};
use crate::auth::Access;
use crate::effect::{Earlier, Effect, NOT_KEPT};
use crate::error::Code;
use crate::google::calendar::{DIGEST, Made, NewEvent};
use crate::rights::{As, Right};
use crate::server::{self, Service};
use crate::settings::Limits;
use crate::time::{self, Span};

pub(crate) const NAME: &str = "calendar_event_create";

const MAX_TEXT: usize = 8192;

const DESCRIPTION: &str = "\
Create one event in the user's own Google Calendar and invite the attendees, if any. Invitations go out at once, so the time and \
the attendees must be what the user wants; never make up an address. start and end are both date-times \
(2026-03-31T09:00:00+02:00, or the local time without an offset together with time_zone) or, for whole days, both dates \
(2026-03-31), where end is the day after the last day. Work out words such as 'tomorrow at ten' yourself, in the user's time zone. \
Answers with the event and its link.";

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Arguments {
    /// The title.
    #[schemars(length(min = 1, max = 1024))]
    summary: String,
    /// Details for all guests, as plain text: markup is shown as it is written.
    #[schemars(length(max = MAX_TEXT))]
    description: Option<String>,
    /// Where it is.
    #[schemars(length(max = MAX_TEXT))]
    location: Option<String>,
    /// When it begins: a date-time, or a date for whole days. Write the local time without an offset beside time_zone
    /// (2026-03-31T09:00:00 and Europe/Berlin); a time that ends with Z is in UTC, and hours off where a local time was
    /// meant.
    #[schemars(length(max = 64))]
    start: String,
    /// When it ends, in the form of start. For whole days the day after the last one.
    #[schemars(length(max = 64))]
    end: String,
    /// The IANA time zone of start and end, such as Europe/Berlin. Needed where they have no offset.
    #[schemars(length(min = 1, max = 64))]
    time_zone: Option<String>,
    /// Who is invited: ann@example.com, or Ann Example <ann@example.com>.
    #[serde(default)]
    attendees: Vec<Given>,
    /// Whether to add a Google Meet video call. false when left out.
    conference: Option<bool>,
    /// Whom Google notifies: all attendees (also when left out), only those outside Google Calendar, or none.
    #[schemars(extend("enum" = ["all", "externalOnly", "none"]))]
    send_updates: Option<String>,
    /// Which calendar. The user's own (primary) when left out.
    #[schemars(length(min = 1, max = 254))]
    calendar_id: Option<String>,
    /// The user's own reminders, at most 5; an empty list means none. Those of the calendar when left out.
    #[schemars(length(max = 5))]
    reminders: Option<Vec<Reminder>>,
    /// Only true lets the event begin in the past. Set it when the user wants to note down something that has ended.
    allow_past: Option<bool>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Reminder {
    #[schemars(extend("enum" = ["email", "popup"]))]
    method: String,
    /// How long before the start.
    // Four weeks, which is Google's limit.
    #[schemars(range(max = 40_320))]
    minutes: u32,
}

#[derive(Serialize, JsonSchema)]
struct Answered {
    /// The event as Google keeps it.
    event: Shown,
    /// An earlier call with the same key had created it, and its answer was lost.
    recovered: bool,
}

#[derive(Serialize, JsonSchema)]
struct Shown {
    id: String,
    calendar_id: String,
    /// confirmed; cancelled when it was deleted since.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "JsonObject")]
    start: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "JsonObject")]
    end: Option<Value>,
    attendees: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meet_link: Option<String>,
}

pub(crate) fn tool() -> Tool<Service> {
    let run = |service: Arc<Service>, call: Call<Arguments>| async move {
        let digest = call.digest.clone();
        let made = service
            .effect(NAME, call, |arguments, limits| parse(arguments, limits, digest))
            .await?;
        Ok(Whole::<Answered>::from(made))
    };
    let tool = Tool::new(NAME, "Create a calendar event", DESCRIPTION, Kind::Creates, run);
    tool.open_world(true).with_class().with_settings(json!({
        "preflight": "google_account",
        "recipients": ["attendees"],
        "freeArguments": [
            "summary", "description", "location", "start", "end", "time_zone", "conference", "send_updates",
            "reminders", "allow_past"
        ],
        "singleLine": ["summary", "location"],
        "times": { "start": "start", "end": "end", "zone": "time_zone", "allowPast": "allow_past" }
    }))
}

/// A call with parsed arguments.
#[derive(Debug)]
pub(crate) struct Request {
    calendar_id: String,
    send_updates: String,
    conference: bool,
    /// It would begin in the past, and `allow_past` is not set.
    is_past: bool,
    /// The event, without the fields that depend on its id.
    body: Value,
    digest: String,
}

pub(crate) fn parse(arguments: Arguments, limits: &Limits, digest: String) -> Result<Request, ToolError> {
    request(arguments, limits, digest).map_err(of_arguments)
}

fn request(given: Arguments, limits: &Limits, digest: String) -> Result<Request, ToolError> {
    let summary = given.summary;
    if summary.chars().any(char::is_control) {
        let words = "`summary` contains a line break or another control character.";
        return Err(ToolError::new(Code::UnsafeText, words).about("summary"));
    }
    let zone = given.time_zone.map(|name| time::zone(&name)).transpose()?;
    let span = Span::parse(&given.start, &given.end, zone)?;
    let (start, end) = span.json();
    let attendees = address::recipients("attendees", &given.attendees, limits.recipients)?;
    let mut body = json!({ "summary": summary, "start": start, "end": end });
    let has_content = |text: &String| !text.is_empty();
    if let Some(location) = given.location.filter(has_content) {
        body["location"] = location.into();
    }
    if let Some(description) = given.description.filter(has_content) {
        body["description"] = as_html(&description)?.into();
    }
    if !attendees.is_empty() {
        body["attendees"] = attendees.iter().map(attendee).collect();
    }
    if let Some(reminders) = given.reminders {
        body["reminders"] = json!({ "useDefault": false, "overrides": reminders });
    }
    Ok(Request {
        calendar_id: calendar_id(given.calendar_id)?,
        send_updates: given.send_updates.unwrap_or_else(|| "all".to_owned()),
        conference: given.conference.unwrap_or_default(),
        is_past: !given.allow_past.unwrap_or_default() && span.is_past(Utc::now()),
        body,
        digest,
    })
}

/// Escapes a description, which Google treats as HTML. Guests must see the approved text, so nothing in it may act as
/// markup; line breaks are kept.
fn as_html(text: &str) -> Result<String, ToolError> {
    let html = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let length = html.chars().count();
    if length > MAX_TEXT {
        let words = format!(
            "`description` has {length} characters as HTML, where &, < and > take several; at most {MAX_TEXT} are allowed."
        );
        let error = ToolError::new(Common::TooLong, words).about("description");
        return Err(error.with("max", MAX_TEXT).with("length", length));
    }
    Ok(html)
}

fn in_the_past() -> ToolError {
    ToolError::new(
        Code::InThePast,
        "The event would begin in the past. Check the date; if it is intended, set `allow_past`.",
    )
    .about("start")
}

fn attendee(recipient: &Recipient) -> Value {
    let mut attendee = json!({ "email": recipient.address });
    if let Some(name) = &recipient.name {
        attendee["displayName"] = name.as_str().into();
    }
    attendee
}

fn calendar_id(given: Option<String>) -> Result<String, ToolError> {
    let id = given.unwrap_or_else(|| "primary".to_owned());
    let fits = |character: char| character.is_ascii_alphanumeric() || "@._-+#".contains(character);
    // A segment of dots would lead to another URL.
    if !id.chars().all(fits) || id.chars().all(|character| character == '.') {
        return Err(invalid("calendar_id", "is not an id that Google Calendar gave"));
    }
    Ok(id)
}

/// Could the event be created?
pub(crate) fn check(request: &Request) -> Result<(), ToolError> {
    match request.is_past {
        true => Err(in_the_past().class(Class::Arguments)),
        false => Ok(()),
    }
}

impl server::Request for Request {
    const RIGHT: Right = Right::WriteEvents;
    const DONE: &'static str = "this event was created";

    async fn carry_out(
        self,
        service: &Service,
        effect: &Effect<'_>,
        who: As<'_>,
        access: Access,
        earlier: Earlier,
    ) -> Result<Answer, Fault> {
        let past = self
            .is_past
            .then_some("it is not in the calendar, and would begin in the past by now");
        let (perhaps_there, only_found) = match &earlier {
            Earlier::Begun(_) => (true, past),
            Earlier::Claimed { never_came: false, .. } => (true, Some(NOT_KEPT)),
            Earlier::Claimed { .. } | Earlier::None if self.is_past => return Err(in_the_past().into()),
            // If another call is faster, the id prevents a second event.
            Earlier::Claimed { .. } | Earlier::None => (!effect.claim(&earlier, &access.mailbox).await?, None),
        };
        let digest = self.digest.clone();
        let new = event(effect.reference(), self, only_found);
        match service.google.make_event(who, &new, perhaps_there).await {
            // The event's own data outlives our database.
            Ok(made) if made.existed && made.event.digest() != Some(digest.as_str()) => Err(key_reused().into()),
            Ok(made) => Ok(effect.done(answer(made, &new.calendar_id)).await),
            Err(Fault::Refused(error)) => {
                effect.undone().await;
                Err(error.into())
            }
            Err(Fault::Unsettled(why)) => Err(effect.unsettled(Self::DONE, &why)),
        }
    }
}

fn event(id: String, request: Request, only_found: Option<&'static str>) -> NewEvent {
    let Request {
        calendar_id,
        send_updates,
        conference,
        is_past: _,
        mut body,
        digest,
    } = request;
    body["id"] = id.as_str().into();
    body["extendedProperties"] = json!({ "private": { DIGEST: digest } });
    if conference {
        body["conferenceData"] = json!({
            "createRequest": { "requestId": id, "conferenceSolutionKey": { "type": "hangoutsMeet" } }
        });
    }
    NewEvent {
        id,
        calendar_id,
        send_updates,
        conference,
        only_found,
        body,
    }
}

fn answer(made: Made, calendar_id: &str) -> Answer {
    let Made { event, existed } = made;
    let attendees: Vec<_> = event
        .attendees
        .into_iter()
        .filter_map(|attendee| attendee.email)
        .collect();
    let is_object = |value: &Value| value.is_object();
    Answer::from_body(&Answered {
        event: Shown {
            id: event.id,
            calendar_id: calendar_id.to_owned(),
            status: event.status,
            summary: event.summary,
            start: event.start.filter(is_object),
            end: event.end.filter(is_object),
            attendees,
            link: event.html_link,
            meet_link: event.hangout_link,
        },
        recovered: existed,
    })
}
