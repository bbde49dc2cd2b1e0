//! "E-mail Ann that I am late, and put a meeting tomorrow at 10."

use chrono::{Days, Utc};
use serde_json::{Value, json};

use super::{BOTH, Desk, account, states};
use crate::gemini::Reply;
use crate::workspace::Google;

const PROMPT: &str = "E-mail Bea that I am late, and put a meeting with her tomorrow at 10.";
const SUBJECT: &str = "Bin spät dran – entschuldige 🙏";
const BODY: &str = "Liebe Bea,\n\nich komme später.\n\nÄnn";
const NO: &str = "Not tomorrow, I am on holiday.";

fn mail() -> Value {
    json!({
        "to": ["Bea Müller <bea@example.com>"], "cc": ["carl@example.org"], "bcc": ["dora@example.net"],
        "subject": SUBJECT, "body": BODY,
    })
}

fn meeting() -> Value {
    let day = Utc::now().date_naive() + Days::new(1);
    json!({
        "summary": "Besprechung", "start": format!("{day}T10:00:00"), "end": format!("{day}T10:30:00"),
        "time_zone": "Europe/Berlin", "attendees": ["bea@example.com"],
    })
}

/// Makes both calls in one turn, and then repeats the results it received.
fn model() -> Vec<Reply> {
    vec![Reply::from(|request| {
        let contents = request["contents"].as_array().unwrap();
        let answers: Vec<_> = contents.last().unwrap()["parts"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|part| part.get("functionResponse"))
            .collect();
        if answers.is_empty() {
            return Reply::Calls(vec![("gmail_send", mail()), ("calendar_event_create", meeting())]);
        }
        assert_eq!(answers.len(), 2, "both are answered in one turn");
        let rejected = |answer: &&Value| answer["response"]["error"]["code"] == "rejected";
        let no = answers.iter().find(|answer| rejected(answer)).unwrap();
        assert!(no["response"].to_string().contains(NO), "{no}");
        match answers.iter().position(rejected) {
            Some(1) => Reply::Text("I have written to Bea. The meeting was not made: you are on holiday."),
            _ => Reply::Text("The meeting is made. Bea was not written to."),
        }
    })]
}

/// Starts the run, directly or as a stream, and returns the waiting run.
async fn begin(desk: &Desk, streamed: bool) -> Value {
    if !streamed {
        return desk.say("ann", PROMPT).await;
    }
    let request = desk
        .app
        .request("POST", "/api/agent/run/stream", &[("x-gavel-user", "ann")]);
    let answer = request.json(&json!({"prompt": PROMPT})).send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], "application/x-ndjson");
    let text = answer.text().await.unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (&lines[0]["type"], &lines[0]["status"]),
        (&json!("status"), &json!("planning"))
    );
    let last = lines.last().unwrap();
    assert_eq!(last["type"], "result", "{text}");
    assert_eq!(lines[0]["threadId"], last["result"]["threadId"]);
    last["result"].clone()
}

/// The one e-mail, parsed as its recipient would.
fn the_mail(google: &Google) {
    let sent = google.sent(&account("ann"));
    let [mail] = &sent[..] else {
        panic!("{} e-mails", sent.len())
    };
    let message = mail.message();
    assert_eq!(message.subject(), Some(SUBJECT));
    assert_eq!(
        message.body_text(0).unwrap().replace("\r\n", "\n").trim_end(),
        BODY,
        "the text is what was approved"
    );
    let to = message.to().unwrap().first().unwrap();
    assert_eq!((to.name(), to.address()), (Some("Bea Müller"), Some("bea@example.com")));
    assert_eq!(
        mail.delivered_to,
        ["bea@example.com", "carl@example.org", "dora@example.net"]
    );
    let delivered = String::from_utf8(mail.delivered.clone()).unwrap();
    assert!(!delivered.contains("dora"), "the Bcc recipient is visible: {delivered}");
}

/// The one event in the calendar.
fn the_event(google: &Google) {
    let events = google.events(&account("ann"));
    let [event] = &events[..] else {
        panic!("{} events", events.len())
    };
    let meeting = meeting();
    assert_eq!(event["summary"], "Besprechung");
    assert_eq!(event["start"]["timeZone"], "Europe/Berlin");
    let (start, asked) = (
        event["start"]["dateTime"].as_str().unwrap(),
        meeting["start"].as_str().unwrap(),
    );
    assert!(start.starts_with(asked), "{event}");
    assert_eq!(google.invitations().len(), 1);
}

/// two actions wait with all their recipients and their whole text. One is approved and happens
/// once, the other is rejected and does not. The thread shows it in order, whichever is approved, in either order,
/// streamed or not.
#[tokio::test]
async fn one_of_two_is_approved_and_happens_once_and_the_other_is_rejected() {
    // Which one is approved, which one is answered first, and how the run was started.
    for (kind, approved, first, streamed) in BOTH
        .into_iter()
        .flat_map(|kind| [(kind, 0, 0, false), (kind, 1, 0, true), (kind, 0, 1, true)])
    {
        let desk = Desk::new(kind, model()).await;
        let waiting = begin(&desk, streamed).await;
        assert_eq!(waiting["status"], "awaiting_confirmation", "{waiting}");
        assert_eq!(states(&waiting), ["awaiting_confirmation"; 2]);
        let actions = waiting["actions"].as_array().unwrap().clone();
        for (action, (tool, arguments)) in actions
            .iter()
            .zip([("gmail_send", mail()), ("calendar_event_create", meeting())])
        {
            assert_eq!(
                (&action["tool"], &action["arguments"], &action["requiresApproval"]),
                (&json!(tool), &arguments, &json!(true))
            );
        }
        let pending = desk.pending("ann").await;
        assert_eq!(
            (&pending[0]["recipients"], &pending[1]["recipients"]),
            (
                &json!(["bea@example.com", "carl@example.org", "dora@example.net"]),
                &json!(["bea@example.com"])
            ),
            "{pending:?}"
        );
        desk.nothing_happened();

        let mut run = Value::Null;
        for (n, place) in [first, 1 - first].into_iter().enumerate() {
            run = match place == approved {
                true => desk.resolve("ann", &actions[place], "approve_once", None).await,
                false => desk.resolve("ann", &actions[place], "reject", Some(NO)).await,
            };
            let status = ["awaiting_confirmation", "completed"][n];
            assert_eq!(run["status"], status, "{run}");
        }
        let again = desk.resolve("ann", &actions[approved], "approve_once", None).await;
        assert_eq!(again, run, "a repeated answer gets the same response");
        let states_then = [["completed", "rejected"], ["rejected", "completed"]][approved];
        assert_eq!(states(&run), states_then, "{run}");
        let summary = [
            "I have written to Bea. The meeting was not made: you are on holiday.",
            "The meeting is made. Bea was not written to.",
        ][approved];
        assert_eq!(run["summary"], summary);
        if approved == 0 {
            the_mail(&desk.google);
            assert!(desk.google.events(&account("ann")).is_empty());
            assert!(desk.google.seen("insert").is_empty());
        } else {
            the_event(&desk.google);
            assert!(desk.google.seen("send").is_empty());
        }

        let thread = desk.thread("ann", &run).await;
        // The approval request shows the arguments, or as much of them as fits in a thread.
        let lines: Vec<_> = thread
            .iter()
            .map(|(role, text)| {
                if role == "action" {
                    let (tool, rest) = text.split_once(" (").unwrap();
                    let (_, said) = rest.rsplit_once(") ").unwrap();
                    let (said, id) = said.split_once("; the id of its result is ").unwrap();
                    assert!(!id.is_empty(), "{text}");
                    return (role.as_str(), format!("{tool} {said}"));
                }
                if role != "approval_request" {
                    return (role.as_str(), text.clone());
                }
                let (question, rest) = text.split_once(" (").unwrap();
                let (arguments, why) = rest.rsplit_once(")? ").unwrap();
                assert!(arguments.len() <= 400 && !arguments.contains('\n'), "{arguments}");
                let about = match question.contains("gmail_send") {
                    true => mail()["subject"].clone(),
                    false => meeting()["start"].clone(),
                };
                assert!(
                    arguments.contains(about.as_str().unwrap()) && arguments.contains("bea@example.com"),
                    "{arguments}"
                );
                (role.as_str(), format!("{question}? {why}"))
            })
            .collect();
        let lines: Vec<_> = lines.iter().map(|(role, text)| (*role, text.as_str())).collect();
        let answer = |place: usize| match place == approved {
            true => format!("ann approved {}", ["gmail_send", "calendar_event_create"][place]),
            false => format!("ann rejected {}: {NO}", ["gmail_send", "calendar_event_create"][place]),
        };
        let (one, other) = (answer(first), answer(1 - first));
        let done = format!("{} was executed", ["gmail_send", "calendar_event_create"][approved]);
        let mut answers = vec![("approval", one.as_str()), ("approval", other.as_str())];
        // An approved call runs at once.
        answers.insert(1 + usize::from(first != approved), ("action", done.as_str()));
        let asked = [
            ("user", PROMPT),
            (
                "approval_request",
                "May I call gmail_send from ann@gmail.example? \"gmail_send\" sends something to other people.",
            ),
            (
                "approval_request",
                "May I call calendar_event_create from ann@gmail.example? \"calendar_event_create\" sends something to other people.",
            ),
        ];
        let expected: Vec<_> = asked
            .into_iter()
            .chain(answers)
            .chain([("assistant", summary)])
            .collect();
        assert_eq!(lines, expected, "{kind:?}");
        assert!(desk.pending("ann").await.is_empty());
        desk.google.finish();
        desk.app.stop().await;
    }
}
