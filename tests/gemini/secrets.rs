//! Canaries: keys and payload stay out of errors, logs and debug output.

use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock};

use gavel::adapters::gemini::{Endpoint, Gemini, GeminiConfig};
use gavel::domain::journal::Speaker;
use gavel::ports::model::Content;
use tracing_subscriber::fmt::MakeWriter;

use crate::helpers::{MODEL, Question, quick, reply, said};
use crate::server::{Far, Step, end_of_stream, event, json, open_stream};

const KEY_CANARY: &str = "canary-of-the-key";
const SAID_CANARY: &str = "canary of what was said";
const ANSWER_CANARY: &str = "canary of the answer";

#[derive(Clone, Default)]
pub(crate) struct Log(pub(crate) Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// The log of the whole process: with a subscriber for one thread only, another test's thread may reach a callsite first,
/// which then stays disabled for all.
pub(crate) fn log() -> Log {
    static LOG: OnceLock<Log> = OnceLock::new();
    let log = LOG.get_or_init(|| {
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_span_events(tracing_subscriber::fmt::format::FmtSpan::FULL)
            .with_ansi(false)
            .with_writer(log.clone())
            .finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
        log
    });
    log.clone()
}

fn config(url: &str) -> GeminiConfig {
    let endpoint = Endpoint::Developer {
        base_url: Some(url.to_owned()),
        api_key: KEY_CANARY.into(),
    };
    quick(GeminiConfig::new(endpoint, MODEL))
}

/// Secrets never reach a log, an error, a trace or a row.
#[tokio::test]
async fn no_secret_and_no_message_text_reaches_a_log_or_an_error() {
    let echo = |status: u16| {
        let message = format!("Invalid value at 'x', \\\"{SAID_CANARY}\\\" for key {KEY_CANARY}");
        json(
            status,
            &format!(r#"{{"error":{{"code":{status},"status":"X","message":"{message}"}}}}"#),
        )
    };
    let mut broken = open_stream();
    broken.extend([
        event(&reply(
            &format!(r#"{{"text":"{ANSWER_CANARY}"}}"#),
            "OTHER",
            r#","finishMessage":"x""#,
        )),
        end_of_stream(),
    ]);
    let odd_json = json(200, &format!(r#"{{"candidates":"{ANSWER_CANARY}"}}"#));
    let odd_head = vec![Step::Send(format!("{ANSWER_CANARY}\r\n\r\n").into_bytes()), Step::Close];
    let scripts = [
        vec![echo(400)],
        vec![echo(403)],
        vec![echo(503), echo(500), echo(429)],
        vec![odd_json],
        vec![odd_head.clone(), odd_head.clone(), odd_head],
        vec![broken],
        vec![json(200, &said(ANSWER_CANARY))],
    ];
    let log = log();
    let mut reported = String::new();
    for script in scripts {
        for way in ["unary", "stream", "check"] {
            let far = Far::start(script.clone()).await;
            let gemini = Gemini::new(config(&far.url)).unwrap();
            let question = Question {
                contents: vec![Content::Text(Speaker::User, SAID_CANARY)],
                ..Question::default()
            };
            let error = match way {
                "unary" => question.ask(&gemini).await.err().map(|fault| format!("{fault:?}")),
                "stream" => question.listen(&gemini).await.0.err().map(|fault| format!("{fault:?}")),
                _ => gemini.check().await.err().map(|error| format!("{error:?} {error}")),
            };
            reported.push_str(&format!("{way}: {error:?}\n"));
            for seen in far.seen() {
                assert!(!seen.line.contains(KEY_CANARY), "{}", seen.line);
            }
        }
    }
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(
        log.contains("model_attempt") && log.contains("retrying"),
        "the log was not captured: {log}"
    );
    assert!(reported.contains("429 X") && reported.contains("400 X"), "{reported}");
    for canary in [KEY_CANARY, SAID_CANARY, ANSWER_CANARY] {
        for (name, text) in [("log", &log), ("errors", &reported)] {
            let line = text.lines().find(|line| line.contains(canary));
            assert_eq!(line, None, "{canary:?} is in the {name}");
        }
    }
}

#[test]
fn a_configuration_prints_without_its_key_and_a_bad_key_is_not_repeated() {
    assert!(!format!("{:?}", config("http://127.0.0.1")).contains(KEY_CANARY));
    for key in ["", "  ", "canary-of-the-key\n2", "canary-of-the-key é"] {
        let endpoint = Endpoint::Developer {
            base_url: Some("http://127.0.0.1".to_owned()),
            api_key: key.into(),
        };
        let error = Gemini::new(GeminiConfig::new(endpoint, MODEL))
            .err()
            .unwrap()
            .to_string();
        assert!(error.starts_with("api_key: ") && !error.contains(KEY_CANARY), "{error}");
    }
}
