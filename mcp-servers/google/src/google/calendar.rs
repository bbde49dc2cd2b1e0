//! Calendar: creates an event with an id of our own, so that it cannot be created twice.

use gavel_mcp_base::{Fault, ToolError};
use serde::Deserialize;
use serde_json::Value;

use super::{ATTEMPTS, Google, Reply, Retries, Sent, at, get, is_googles, is_refused, is_transient, post, refusal};
use crate::error::unavailable;
use crate::rights::{As, Right};

/// An event as stored by Google; only the fields for the answer.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Event {
    pub(crate) id: String,
    pub(crate) status: Option<String>,
    pub(crate) html_link: Option<String>,
    pub(crate) hangout_link: Option<String>,
    pub(crate) summary: Option<String>,
    pub(crate) start: Option<Value>,
    pub(crate) end: Option<Value>,
    #[serde(default)]
    pub(crate) attendees: Vec<Attendee>,
    #[serde(default)]
    extended_properties: Extended,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Attendee {
    pub(crate) email: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Extended {
    #[serde(default)]
    private: serde_json::Map<String, Value>,
}

/// The event property with the digest of the arguments.
pub(crate) const DIGEST: &str = "gavelArguments";

impl Event {
    pub(crate) fn digest(&self) -> Option<&str> {
        self.extended_properties.private.get(DIGEST).and_then(Value::as_str)
    }
}

/// The event to create, and its calendar.
#[derive(Debug)]
pub(crate) struct NewEvent {
    pub(crate) id: String,
    pub(crate) calendar_id: String,
    pub(crate) send_updates: String,
    pub(crate) conference: bool,
    /// If set, the event may be found but is not created; the text gives the reason.
    pub(crate) only_found: Option<&'static str>,
    pub(crate) body: Value,
}

impl NewEvent {
    /// The event in an answer; `None` if it is another event.
    fn read(&self, reply: &Reply) -> Option<Event> {
        reply.json().filter(|event: &Event| event.id == self.id)
    }
}

/// A created or found event.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) event: Event,
    /// It existed before this request.
    pub(crate) existed: bool,
}

impl Google {
    /// Creates an event, or finds the one that an earlier attempt created. `perhaps_there`: an earlier call may have
    /// created it.
    pub(crate) async fn make_event(&self, who: As<'_>, new: &NewEvent, perhaps_there: bool) -> Result<Made, Fault> {
        const NO_ANSWER: &str = "Google did not answer";
        let mut url = at(&self.places.calendar, &["calendars", &new.calendar_id, "events"]);
        url.query_pairs_mut()
            .append_pair("sendUpdates", &new.send_updates)
            .append_pair("conferenceDataVersion", if new.conference { "1" } else { "0" });
        let request = post(url, &new.body)?;
        let mut lost = perhaps_there;
        let mut retries = Retries::new(ATTEMPTS, who.deadline);
        loop {
            // Google says that equal ids may not be detected at once, so look for the event first.
            if lost
                && let Some(event) = self
                    .event(who, new)
                    .await
                    .map_err(|_| Fault::Unsettled("it could not be looked up".to_owned()))?
            {
                return Ok(Made { event, existed: true });
            }
            if let Some(why) = new.only_found {
                return Err(Fault::Unsettled(why.to_owned()));
            }
            let reply = match self.change(who, Right::WriteEvents, &request).await {
                Sent::Answered(reply) if reply.status.is_success() => match new.read(&reply) {
                    Some(event) => return Ok(Made { event, existed: false }),
                    None => {
                        lost = true;
                        None
                    }
                },
                Sent::Answered(reply) if reply.status == 409 => {
                    let found = self.event(who, new).await;
                    return match found {
                        Ok(Some(event)) => Ok(Made { event, existed: true }),
                        Ok(None) | Err(_) => Err(Fault::Unsettled(
                            "Google says that the event exists, but does not return it".to_owned(),
                        )),
                    };
                }
                Sent::Answered(reply) if is_transient(&reply) || !is_googles(&reply) => {
                    lost |= !is_refused(&reply);
                    Some(reply)
                }
                Sent::Answered(reply) if !lost && is_refused(&reply) => {
                    return Err(refusal(&reply, Right::WriteEvents.name()).into());
                }
                Sent::Never(error) if !lost => return Err(error.into()),
                Sent::Answered(_) | Sent::Never(_) => return Err(Fault::Unsettled(NO_ANSWER.to_owned())),
                Sent::Unknown => {
                    lost = true;
                    None
                }
            };
            if !retries.again(reply.as_ref()).await {
                return Err(match reply.filter(|_| !lost) {
                    Some(reply) => refusal(&reply, Right::WriteEvents.name()).into(),
                    None => Fault::Unsettled(NO_ANSWER.to_owned()),
                });
            }
        }
    }

    async fn event(&self, who: As<'_>, new: &NewEvent) -> Result<Option<Event>, ToolError> {
        let url = at(
            &self.places.calendar,
            &["calendars", &new.calendar_id, "events", &new.id],
        );
        match self.read(who, Right::WriteEvents, &get(url)).await {
            Ok(reply) => new.read(&reply).map(Some).ok_or_else(unavailable),
            Err(error) if error.code() == "not_found" => Ok(None),
            Err(error) => Err(error),
        }
    }
}
