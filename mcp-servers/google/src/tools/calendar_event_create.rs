//! `calendar_event_create`

use chrono::Utc;
use gavel_mcp_base::schema::{self, Behaviour};
use gavel_mcp_base::{Answer, Arguments, Class, Code as Common, ToolError, digest, invalid, key_reused, missing};
use rmcp::model::{JsonObject, Tool};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{recipients, reference};
use crate::address::{self, Recipient};
use crate::auth::Access;
use crate::effect::{Earlier, Effect, NOT_KEPT};
use crate::error::{Code, Fault};
use crate::google::Google;
use crate::google::calendar::{DIGEST, Made, NewEvent};
use crate::rights::As;
use crate::settings::Limits;
use crate::time::{self, Span};

pub(crate) const NAME: &str = "calendar_event_create";

const MAX_SUMMARY: usize = 1024;
const MAX_TEXT: usize = 8192;
const MAX_REMINDERS: usize = 5;
/// Four weeks, which is Google's limit.
const MAX_REMINDER_MINUTES: u64 = 40_320;

const DESCRIPTION: &str = "\
Create one event in the user's own Google Calendar and invite the attendees, if any. Invitations go out at once, so the time and \
the attendees must be what the user wants; never make up an address. start and end are both date-times \
(2026-03-31T09:00:00+02:00, or the local time without an offset together with time_zone) or, for whole days, both dates \
(2026-03-31), where end is the day after the last day. Work out words such as 'tomorrow at ten' yourself, in the user's time zone. \
Answers with the event and its link.";

pub(crate) fn tool() -> Tool {
    let tool = schema::tool(
        NAME,
        "Create a calendar event",
        DESCRIPTION,
        schema::input(
            json!({
                "summary": { "type": "string", "description": "The title." },
                "description": { "type": "string", "description": "Details for all guests, as plain text: markup is shown as it is written." },
                "location": { "type": "string", "description": "Where it is." },
                "start": { "type": "string", "description": "When it begins: a date-time, or a date for whole days. Write the local time without an offset beside time_zone (2026-03-31T09:00:00 and Europe/Berlin); a time that ends with Z is in UTC, and hours off where a local time was meant." },
                "end": {
                    "type": "string",
                    "description": "When it ends, in the form of start. For whole days the day after the last one."
                },
                "time_zone": {
                    "type": "string",
                    "description": "The IANA time zone of start and end, such as Europe/Berlin. Needed where they have no offset."
                },
                "attendees": recipients("Who is invited: ann@example.com, or Ann Example <ann@example.com>."),
                "conference": { "type": "boolean", "description": "Whether to add a Google Meet video call. false when left out." },
                "send_updates": {
                    "type": "string",
                    "enum": ["all", "externalOnly", "none"],
                    "description": "Whom Google notifies: all attendees (also when left out), only those outside Google Calendar, or none."
                },
                "calendar_id": {
                    "type": "string",
                    "description": "Which calendar. The user's own (primary) when left out."
                },
                "reminders": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "method": { "type": "string", "enum": ["email", "popup"] },
                            "minutes": { "type": "integer", "description": "How long before the start." }
                        },
                        "required": ["method", "minutes"],
                        "additionalProperties": false
                    },
                    "description": "The user's own reminders, at most 5; an empty list means none. Those of the calendar when left out."
                },
                "allow_past": {
                    "type": "boolean",
                    "description": "Only true lets the event begin in the past. Set it when the user wants to note down something that has ended."
                }
            }),
            &["summary", "start", "end"],
        ),
        schema::output(
            schema::properties([
                (
                    "event",
                    json!({
                        "type": "object",
                        "description": "The event as Google keeps it.",
                        "properties": {
                            "id": { "type": "string" },
                            "calendar_id": { "type": "string" },
                            "status": { "type": "string", "description": "confirmed; cancelled when it was deleted since." },
                            "summary": { "type": "string" },
                            "start": { "type": "object" },
                            "end": { "type": "object" },
                            "attendees": { "type": "array", "items": { "type": "string" } },
                            "link": { "type": "string" },
                            "meet_link": { "type": "string" }
                        },
                        "required": ["id", "calendar_id", "attendees"],
                        "additionalProperties": false
                    }),
                ),
                (
                    "recovered",
                    json!({
                        "type": "boolean",
                        "description": "An earlier call with the same key had created it, and its answer was lost."
                    }),
                ),
            ]),
            &["event", "recovered"],
        ),
        Behaviour {
            read_only: false,
            destructive: false,
            idempotent: false,
            open_world: true,
        },
    );
    schema::with_settings(
        tool,
        json!({
            "preflight": "google_account",
            "recipients": ["attendees"],
            "freeArguments": [
                "summary", "description", "location", "start", "end", "time_zone", "conference", "send_updates",
                "reminders", "allow_past"
            ],
            "singleLine": ["summary", "location"],
            "times": { "start": "start", "end": "end", "zone": "time_zone", "allowPast": "allow_past" }
        }),
    )
}

/// A call with parsed arguments.
#[derive(Debug)]
pub(crate) struct Request {
    calendar_id: String,
    send_updates: &'static str,
    conference: bool,
    /// It would begin in the past, and `allow_past` is not set.
    is_past: bool,
    /// The event, without the fields that depend on its id.
    body: Value,
    digest: String,
}

pub(crate) fn parse(arguments: Option<JsonObject>, limits: &Limits) -> Result<Request, ToolError> {
    let digest = digest(arguments.as_ref());
    let arguments = Arguments::new(
        arguments,
        &[
            "summary",
            "description",
            "location",
            "start",
            "end",
            "time_zone",
            "attendees",
            "conference",
            "send_updates",
            "calendar_id",
            "reminders",
            "allow_past",
        ],
    )?;
    let summary = arguments
        .visible_text("summary", MAX_SUMMARY)?
        .ok_or_else(|| missing("summary"))?;
    if summary.chars().any(char::is_control) {
        let words = "`summary` contains a line break or another control character.";
        return Err(ToolError::new(Code::UnsafeText, words).about("summary"));
    }
    let span = span(&arguments)?;
    let past_is_meant = arguments.boolean("allow_past")?.unwrap_or_default();
    let (start, end) = span.json();
    let attendees = address::recipients(&arguments, "attendees", limits.recipients)?;
    let mut body = json!({ "summary": summary, "start": start, "end": end });
    let text = |name| Ok(arguments.text(name, MAX_TEXT)?.filter(|text| !text.is_empty()));
    if let Some(location) = text("location")? {
        body["location"] = location.into();
    }
    if let Some(description) = text("description")? {
        body["description"] = as_html(&description)?.into();
    }
    if !attendees.is_empty() {
        body["attendees"] = attendees.iter().map(attendee).collect();
    }
    if let Some(reminders) = reminders(&arguments)? {
        body["reminders"] = reminders;
    }
    let updates = [("all", "all"), ("externalOnly", "externalOnly"), ("none", "none")];
    Ok(Request {
        calendar_id: calendar_id(&arguments)?,
        send_updates: arguments.choice("send_updates", &updates)?.unwrap_or("all"),
        conference: arguments.boolean("conference")?.unwrap_or_default(),
        is_past: !past_is_meant && span.is_past(Utc::now()),
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

fn span(arguments: &Arguments) -> Result<Span, ToolError> {
    let zone = arguments.visible_text("time_zone", 64)?;
    let zone = zone.map(|name| time::zone(&name)).transpose()?;
    let text = |name| arguments.text(name, 64)?.ok_or_else(|| missing(name));
    Span::parse(&text("start")?, &text("end")?, zone)
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

fn calendar_id(arguments: &Arguments) -> Result<String, ToolError> {
    let id = arguments
        .visible_text("calendar_id", 254)?
        .unwrap_or_else(|| "primary".to_owned());
    let fits = |character: char| character.is_ascii_alphanumeric() || "@._-+#".contains(character);
    // A segment of dots would lead to another URL.
    if !id.chars().all(fits) || id.chars().all(|character| character == '.') {
        return Err(invalid("calendar_id", "is not an id that Google Calendar gave"));
    }
    Ok(id)
}

fn reminders(arguments: &Arguments) -> Result<Option<Value>, ToolError> {
    let Some(items) = arguments.list("reminders", MAX_REMINDERS)? else {
        return Ok(None);
    };
    let rule = "has to list reminders such as {\"method\": \"popup\", \"minutes\": 10}, at most four weeks before";
    let fits = |item: &&Value| {
        let known = item.as_object().is_some_and(|object| object.len() == 2);
        let method = matches!(item["method"].as_str(), Some("email" | "popup"));
        known
            && method
            && item["minutes"]
                .as_u64()
                .is_some_and(|minutes| minutes <= MAX_REMINDER_MINUTES)
    };
    if !items.iter().all(|item| fits(&item)) {
        return Err(invalid("reminders", rule));
    }
    Ok(Some(json!({ "useDefault": false, "overrides": items })))
}

/// Could the event be created?
pub(crate) fn check(request: &Request) -> Result<(), ToolError> {
    match request.is_past {
        true => Err(in_the_past().class(Class::Arguments)),
        false => Ok(()),
    }
}

/// Creates the event, at most once per key, unless an earlier call did.
pub(crate) async fn carry_out(
    google: &Google,
    effect: &Effect<'_>,
    who: As<'_>,
    access: Access,
    earlier: Earlier,
    request: Request,
) -> Result<Answer, Fault> {
    const CREATED: &str = "this event was created";
    let past = request
        .is_past
        .then_some("it is not in the calendar, and would begin in the past by now");
    let (perhaps_there, only_found) = match &earlier {
        Earlier::Begun(open) if open.mailbox != access.mailbox => {
            let why = "the user has connected another account since";
            return Err(effect.unsettled(CREATED, why));
        }
        Earlier::Begun(_) => (true, past),
        Earlier::Claimed { never_came: false, .. } => (true, Some(NOT_KEPT)),
        Earlier::Claimed { .. } | Earlier::None if request.is_past => return Err(in_the_past().into()),
        // If another call is faster, the id prevents a second event.
        Earlier::Claimed { .. } | Earlier::None => (!effect.claim(&earlier, &access.mailbox).await?, None),
    };
    let id = match &effect.claim {
        Some(claim) => reference(NAME, who.user, &claim.key),
        None => Uuid::new_v4().simple().to_string(),
    };
    let digest = request.digest.clone();
    let new = event(id, request, only_found);
    match google.make_event(who, &new, perhaps_there).await {
        // The event's own data outlives our database.
        Ok(made) if made.existed && made.event.digest() != Some(digest.as_str()) => Err(key_reused().into()),
        Ok(made) => Ok(effect.done(answer(made, &new.calendar_id)).await),
        Err(Fault::Refused(error)) => {
            effect.undone().await;
            Err(error.into())
        }
        Err(Fault::Unsettled(why)) => Err(effect.unsettled(CREATED, &why)),
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
    let mut shown = json!({ "id": event.id, "calendar_id": calendar_id, "attendees": attendees });
    for (name, text) in [
        ("status", event.status),
        ("summary", event.summary),
        ("link", event.html_link),
        ("meet_link", event.hangout_link),
    ] {
        if let Some(text) = text {
            shown[name] = text.into();
        }
    }
    for (name, value) in [("start", event.start), ("end", event.end)] {
        if let Some(value) = value.filter(Value::is_object) {
            shown[name] = value;
        }
    }
    Answer::of(&json!({ "event": shown, "recovered": existed }))
}
