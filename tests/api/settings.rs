//! Settings whose effect only the whole system shows: Vertex AI, request slots, the connection timeout.

use std::time::{Duration, Instant};

use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::far::{Far, Seen, json};
use crate::gemini::{Reply, turn};
use crate::harness::{App, Setup, spawn_app, until};

const PRIVATE: &str = include_str!("../fixtures/gemini/service-account.test-key.pem");
const PUBLIC: &str = include_str!("../fixtures/gemini/service-account.test-key.pub.pem");

/// A stand-in that has the task `call mom` added, and reports that.
async fn vertex() -> Far {
    let call = json!({"functionCall": {"name": "add_task", "args": {"description": "call mom"}}});
    let turns = [call, json!({"text": "Added."})];
    Far::start(turns.map(|part| json(200, &turn(1, &[part])))).await
}

/// Requests that task, and returns the two requests that Vertex AI got for it.
async fn adds_a_task_by(far: &Far, app: &App) -> [Seen; 2] {
    let decision = app.chat("add a task to call mom").await;
    assert_eq!(decision["outcome_category"], "SUCCESS:TASK_COMPLETED", "{decision}");
    assert_eq!(decision["response"], "Added.");
    assert_eq!(app.tasks().await[0].description, "call mom");
    assert!(
        app.gemini.requests().is_empty(),
        "the Developer API is not asked, although it has a key"
    );
    let seen: [Seen; 2] = far.seen().try_into().unwrap();
    let [first, second] = [seen[0].json(), seen[1].json()];
    let message = first["contents"][0]["parts"][0]["text"].as_str().unwrap();
    assert!(message.ends_with("add a task to call mom"), "{first}");
    let constitution = first["systemInstruction"]["parts"][0]["text"].as_str().unwrap();
    assert!(constitution.contains("task"), "{first}");
    let offered = first["tools"][0]["functionDeclarations"].as_array().unwrap();
    assert!(offered.iter().any(|tool| tool["name"] == "add_task"), "{first}");
    let answered = &second["contents"][2]["parts"][0]["functionResponse"];
    assert_eq!(answered["name"], "add_task", "{second}");
    seen
}

/// P-E: project and location take precedence over a key. The service account is exchanged for a token.
#[tokio::test]
async fn vertex_ai_is_called_with_a_service_account_token() {
    let token = r#"{"access_token":"ya29.granted","expires_in":3599,"token_type":"Bearer"}"#;
    let (far, tokens) = (vertex().await, Far::start([json(200, token)]).await);
    let directory = tempfile::tempdir().unwrap();
    let account = directory.path().join("account.json");
    let token_uri = format!("{}/token", tokens.url);
    let text = json!({
        "type": "service_account",
        "client_email": "robot@p-1.example",
        "private_key_id": "k1",
        "private_key": PRIVATE,
        "token_uri": token_uri,
    });
    std::fs::write(&account, text.to_string()).unwrap();
    let setup = Setup::stdio_sqlite()
        .env("VERTEX_AI_PROJECT_ID", "p-1")
        .env("VERTEX_AI_LOCATION", "europe-west4")
        .env("VERTEX_AI_ENDPOINT", &far.url)
        .env("GOOGLE_APPLICATION_CREDENTIALS", account.to_str().unwrap());
    let app = spawn_app(setup).await;
    for seen in adds_a_task_by(&far, &app).await {
        let path = "/v1/projects/p-1/locations/europe-west4/publishers/google/models/gemini-3.5-flash:generateContent";
        assert_eq!(seen.line, format!("POST {path} HTTP/1.1"));
        assert_eq!(seen.header("authorization"), Some("Bearer ya29.granted"));
        assert_eq!(seen.header("x-goog-api-key"), None);
    }
    let asked = tokens.seen();
    assert_eq!(asked.len(), 1, "one token serves both");
    assert_eq!(asked[0].line, "POST /token HTTP/1.1");
    let mut form = url::form_urlencoded::parse(&asked[0].body);
    let assertion = form.find(|(name, _)| name == "assertion").unwrap().1;
    let mut validation = Validation::new(Algorithm::RS256);
    validation.set_audience(&[token_uri]);
    let key = DecodingKey::from_rsa_pem(PUBLIC.as_bytes()).unwrap();
    let claim = jsonwebtoken::decode::<Value>(&*assertion, &key, &validation).unwrap();
    assert_eq!(claim.claims["iss"], "robot@p-1.example");
}

/// P-E: the same with a key alone, Vertex AI's express mode.
#[tokio::test]
async fn vertex_ai_with_its_own_key_is_called_with_that_key() {
    let far = vertex().await;
    let setup = Setup::stdio_sqlite()
        .env("VERTEX_AI_API_KEY", "express-key")
        .env("VERTEX_AI_ENDPOINT", &far.url);
    let app = spawn_app(setup).await;
    for seen in adds_a_task_by(&far, &app).await {
        let path = "/v1/publishers/google/models/gemini-3.5-flash:generateContent";
        assert_eq!(seen.line, format!("POST {path} HTTP/1.1"));
        assert_eq!(seen.header("x-goog-api-key"), Some("express-key"));
        assert_eq!(seen.header("authorization"), None);
    }
}

/// C-FR-006. Promise: recorded. Beyond `GAVEL_MAX_IN_FLIGHT` a request is shed and recorded as a decision. A freed slot
/// is given to the next request.
#[tokio::test]
async fn a_request_beyond_the_slots_is_shed_and_recorded() {
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        let script = vec![Reply::from(|request| {
            match request["contents"].to_string().contains("slow") {
                true => Reply::After(Duration::from_millis(1500), Box::new(Reply::Text("Done."))),
                false => Reply::Text("Done."),
            }
        })];
        let app = spawn_app(setup.env("GAVEL_MAX_IN_FLIGHT", "2").script(script)).await;
        let shed = async {
            until("both slots to be taken", || async { app.gemini.requests().len() == 2 }).await;
            app.post(&json!({"message": "hi", "user_id": "bob"})).await
        };
        let (one, two, (status, headers, shed)) = tokio::join!(app.chat("slow"), app.chat("slow"), shed);
        assert_eq!(status, 503, "{shed}");
        assert_eq!(headers["retry-after"], "1");
        assert_eq!(
            (&shed["decision_type"], &shed["outcome_category"]),
            (&json!("REFUSE"), &json!("REFUSAL:OVERLOADED")),
            "{shed}"
        );
        assert!(shed["response"].as_str().unwrap().contains("busy"), "{shed}");
        assert_eq!(app.gemini.requests().len(), 2, "the model is not asked");
        for decision in [one, two, app.chat("hi").await] {
            assert_eq!(decision["outcome_category"], "SUCCESS:RESPONSE_GIVEN", "{decision}");
        }
        let record = app.decision(&shed["decision_id"]).await;
        assert_eq!(
            (&record["status"], &record["outcome_category"]),
            (&json!("closed"), &json!("REFUSAL:OVERLOADED")),
            "{record}"
        );
    }
}

/// An address at which connections start and never complete: its queue of two is full.
async fn full() -> (TcpListener, Vec<TcpStream>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queued = Vec::new();
    while let Ok(made) = tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(address)).await {
        queued.push(made.unwrap());
    }
    (listener, queued)
}

/// C-EC-1: `GAVEL_MODEL_CONNECT_SECONDS` limits the time for a connection, for each of three attempts.
#[tokio::test]
async fn the_connection_timeout_is_the_configured_one() {
    let (listener, _queued) = full().await;
    let gemini = format!("http://{}", listener.local_addr().unwrap());
    let app = |seconds: &'static str| {
        let setup = Setup::stdio_sqlite().env("GEMINI_BASE_URL", &gemini);
        spawn_app(setup.env("GAVEL_MODEL_CONNECT_SECONDS", seconds))
    };
    let waited = async |app: App| {
        let begun = Instant::now();
        let decision = app.chat("hi").await;
        assert_eq!(decision["outcome_category"], "ERROR:MODEL_TIMEOUT", "{decision}");
        begun.elapsed()
    };
    let short = waited(app("0.1").await).await;
    assert!(short < Duration::from_secs(3), "{short:?}");
    let long = waited(app("1.5").await).await;
    assert!(long > Duration::from_millis(4500), "{long:?}");
}
