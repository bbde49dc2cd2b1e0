//! Recorded traffic of third parties, replayed to the adapter as it came over the wire.
//!
//! Every file in the directory is tested. The recordings are third-party data, so the snapshot has a summary of each
//! reply (kinds, names, lengths, hashes), never its text.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use gavel::adapters::gemini::{BreakerSettings, Gemini, GeminiConfig, RetrySettings};
use gavel::domain::decision::Usage;
use gavel::domain::journal::{ModelTurn, Part, Speaker};
use gavel::domain::prices::Prices;
use gavel::ports::model::{Content, FunctionResponse, ModelFault};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::helpers::{Question, THOUGHT, developer, raw, said};
use crate::server::{Far, Step, answer, end_of_stream, json as json_answer, piece};

/// The kind of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Unary,
    Stream,
    CountTokens,
    Caches,
    Models,
    Interactions,
}

struct Recording {
    name: String,
    request: Value,
    response: Value,
}

/// Every recording, by name; `None` if they are missing, which is an error if `CI` is set.
fn recordings() -> Option<Vec<Recording>> {
    let shared = std::env::var_os("GAVEL_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared"),
        PathBuf::from,
    );
    let directory = shared.join("gemini/recorded");
    let Ok(entries) = std::fs::read_dir(&directory) else {
        assert!(std::env::var_os("CI").is_none(), "{} is missing", directory.display());
        eprintln!("skipped: {} is missing", directory.display());
        return None;
    };
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.file_name().unwrap() != "INDEX.md");
    paths.sort();
    let read = |path: PathBuf| {
        let mut file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Recording {
            name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
            request: file["request"].take(),
            response: file["response"].take(),
        }
    };
    let recordings: Vec<_> = paths.into_iter().map(read).collect();
    assert!(!recordings.is_empty(), "{} is empty", directory.display());
    Some(recordings)
}

impl Recording {
    fn kind(&self) -> Kind {
        let streamed = self.response.get("stream").is_some();
        let path = match &self.request["path"] {
            Value::Null => "",
            path => path.as_str().unwrap(),
        };
        match path {
            // Published without its request: only replies and errors of generateContent.
            "" if streamed => Kind::Stream,
            "" => Kind::Unary,
            _ if path.ends_with(":generateContent") => Kind::Unary,
            _ if path.ends_with(":streamGenerateContent") => Kind::Stream,
            _ if path.ends_with(":countTokens") => Kind::CountTokens,
            _ if path.contains("/cachedContents") => Kind::Caches,
            _ if path.ends_with("/interactions") => Kind::Interactions,
            _ if path.ends_with("/models") => Kind::Models,
            _ => panic!("{}: what is {path}?", self.name),
        }
    }

    fn status(&self) -> u16 {
        u16::try_from(self.response["status"].as_u64().unwrap()).unwrap()
    }

    /// The response as bytes, in the framing it was recorded in.
    fn script(&self) -> Vec<Step> {
        let Some(chunks) = self.response["stream"].as_array() else {
            return json_answer(self.status(), &self.response["body"].to_string());
        };
        if self.status() != 200 {
            // On this endpoint an error comes as an array.
            return json_answer(self.status(), &self.response["stream"].to_string());
        }
        let (open, between, close, end) = match self.response["framing"].as_str().unwrap() {
            "sse-lf" => ("data: ", "", "", "\n\n"),
            "json-array" => ("", ",\r\n", "]", ""),
            // `json`: the recorder had already split the chunks.
            "sse-crlf" | "json" => ("data: ", "", "", "\r\n\r\n"),
            other => panic!("{}: framing {other}", self.name),
        };
        let array = !close.is_empty();
        let mut steps = crate::server::open_stream();
        for (n, chunk) in chunks.iter().enumerate() {
            let text = match chunk {
                chunk if chunk.get("_raw_json").is_some() => format!("{}\n", chunk["_raw_json"]),
                chunk if chunk.get("_raw").is_some() => format!("{}\n", chunk["_raw"].as_str().unwrap()),
                chunk => {
                    let lead = if n > 0 { between } else { "" };
                    let lead = if array && n == 0 { "[" } else { lead };
                    format!("{lead}{open}{chunk}{end}")
                }
            };
            steps.push(piece(&text));
        }
        if array {
            steps.push(piece(close));
        }
        steps.push(end_of_stream());
        steps
    }

    /// Replays the response to the adapter, which receives a stream with its thoughts.
    async fn play(&self) -> (Result<ModelTurn, ModelFault>, Vec<String>) {
        let far = Far::start([self.script()]).await;
        let gemini = patient(&far.url);
        match self.kind() {
            Kind::Stream => {
                let question = Question {
                    thoughts: true,
                    ..Question::default()
                };
                question.listen(&gemini).await
            }
            _ => (Question::default().ask(&gemini).await, Vec::new()),
        }
    }
}

/// One attempt and no breaker: each recording is independent.
fn patient(url: &str) -> Gemini {
    let config = developer(url);
    Gemini::new(GeminiConfig {
        retry: RetrySettings {
            max_attempts: 1,
            ..config.retry
        },
        breaker: BreakerSettings {
            failures: u32::MAX,
            ..config.breaker
        },
        ..config
    })
    .unwrap()
}

fn hash(text: &str) -> String {
    Sha256::digest(text)
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn usage(usage: Usage) -> String {
    let Usage {
        input_tokens,
        output_tokens,
        thought_tokens,
        cached_tokens,
    } = usage;
    format!("tokens {input_tokens}/{output_tokens}/{thought_tokens}/{cached_tokens}")
}

fn part(part: &Part) -> String {
    match part {
        Part::Text(text) => format!("text({} {})", text.len(), hash(text)),
        Part::Thought(text) => format!("thought({} {})", text.len(), hash(text)),
        Part::Call(call) => {
            let args: BTreeMap<String, Value> = serde_json::from_str(call.args.get()).unwrap();
            let keys: Vec<_> = args.keys().map(String::as_str).collect();
            let id = if call.id.is_some() { "#" } else { "" };
            format!("call{id}({} {} {})", call.name, keys.join(","), hash(call.args.get()))
        }
        Part::Other => "other".to_owned(),
    }
}

/// The received thoughts and text, separately.
fn apart(received: &[String]) -> (Vec<&str>, Vec<&str>) {
    let thoughts = received.iter().filter_map(|text| text.strip_prefix(THOUGHT));
    let words = received.iter().filter(|text| !text.starts_with(THOUGHT));
    (thoughts.collect(), words.map(String::as_str).collect())
}

fn summary(recording: &Recording, answer: &Result<ModelTurn, ModelFault>, received: &[String]) -> String {
    let reported = match answer {
        Ok(turn) => {
            let parts: Vec<_> = turn.parts.iter().map(part).collect();
            let signatures = turn.content.get().matches("\"thoughtSignature\"").count();
            let echo = turn.content.get();
            let echo = format!("echo {} {}, {signatures} signed", echo.len(), hash(echo));
            format!(
                "turn [{}] {echo}, {}, {}",
                parts.join(" "),
                usage(turn.usage),
                turn.model()
            )
        }
        Err(fault) => {
            // The provider's text follows the colon.
            let detail = match fault.detail.starts_with("Gemini answered") {
                true => fault.detail.split(": ").next().unwrap(),
                false => &fault.detail,
            };
            format!("{:?} {detail}, {}", fault.kind, usage(fault.usage))
        }
    };
    let (thoughts, words) = apart(received);
    let received = match recording.kind() {
        Kind::Stream if thoughts.is_empty() => format!(" heard {} {}", words.len(), hash(&words.concat())),
        Kind::Stream => format!(
            " heard {} {} after thoughts {} {}",
            words.len(),
            hash(&words.concat()),
            thoughts.len(),
            hash(&thoughts.concat())
        ),
        _ => String::new(),
    };
    format!("{}: {:?}{received} {reported}", recording.name, recording.kind())
}

/// C-FR-012: every recorded reply is read, and every other file is recognized.
#[tokio::test]
async fn every_recorded_reply_is_read_and_every_other_file_is_recognized() {
    let Some(recordings) = recordings() else { return };
    let (mut lines, mut with_thoughts) = (Vec::new(), 0);
    for recording in &recordings {
        lines.push(match recording.kind() {
            Kind::Unary | Kind::Stream => {
                let (answer, received) = recording.play().await;
                if let Ok(turn) = &answer
                    && recording.kind() == Kind::Stream
                {
                    let (thoughts, words) = apart(&received);
                    assert_eq!(
                        turn.text(),
                        words.concat(),
                        "{}: streamed and final text differ",
                        recording.name
                    );
                    let read = turn.parts.iter().filter_map(|part| match part {
                        Part::Thought(text) => Some(text.as_str()),
                        _ => None,
                    });
                    let read: String = read.collect();
                    assert_eq!(read, thoughts.concat(), "{}: thoughts differ", recording.name);
                    with_thoughts += usize::from(!thoughts.is_empty());
                }
                summary(recording, &answer, &received)
            }
            other => format!("{}: {other:?}, {}", recording.name, recording.status()),
        });
    }
    assert_eq!(with_thoughts, 5, "streams with thoughts");
    insta::with_settings!({
        snapshot_path => "../snapshots",
        prepend_module_to_snapshot => false,
        omit_expression => true,
        description => "One line a recording: kinds, names, lengths and hashes, no text of others."
    }, {
        insta::assert_snapshot!("gemini_recorded", lines.join("\n"));
    });
}

/// Clients whose second request differs from that of a correct client, with the difference.
const DEVIATING: [(&str, &str); 4] = [
    (
        "adkgo-testplugincallbackintegration-agent-tool-default-schema-4",
        "takes arguments out of the call",
    ),
    (
        "pydai-test-google-model-file-search-grounding-gemini-3-true-2",
        "moves a signature to the text before it",
    ),
    (
        "rubyllm-chat-function-calling-thought-thought-signatures-for-tool-calls-2",
        "drops the call's id and the thought",
    ),
    (
        "rubyllm-chat-multimodal-tool-attachmen-cribes-images-returned-from-tools-2",
        "drops the call's id",
    ),
];

/// A normalized content, without the variations that proto JSON allows: field spelling, base64 alphabet, absent empty
/// values. Client-generated ids and empty text without a signature are removed.
fn normal(content: &Value, ours: &Value) -> Value {
    let mut parts = Vec::new();
    for part in content["parts"].as_array().unwrap() {
        let mut fields = serde_json::Map::new();
        for (name, value) in part.as_object().unwrap() {
            let (name, value) = match name.as_str() {
                "function_call" => ("functionCall", value.clone()),
                "function_response" => ("functionResponse", value.clone()),
                "thoughtSignature" | "thought_signature" => ("thoughtSignature", signature(value)),
                other => (other, value.clone()),
            };
            fields.insert(name.to_owned(), value);
        }
        if let Some(call) = fields.get_mut("functionCall").and_then(Value::as_object_mut) {
            call.entry("args").or_insert(json!({}));
            let given = ours["parts"]
                .as_array()
                .unwrap()
                .iter()
                .any(|part| part["functionCall"]["id"] == call.get("id").cloned().unwrap_or_default());
            if !given {
                call.remove("id");
            }
        }
        if fields.len() == 1 && fields.contains_key("thoughtSignature") {
            fields.insert("text".to_owned(), "".into());
        }
        if fields.len() > 1 || fields.get("text") != Some(&"".into()) {
            parts.push(Value::Object(fields));
        }
    }
    json!({"role": content["role"], "parts": parts})
}

fn signature(value: &Value) -> Value {
    let text = value.as_str().unwrap().trim_end_matches('=');
    let bytes = STANDARD_NO_PAD
        .decode(text)
        .or_else(|_| URL_SAFE_NO_PAD.decode(text))
        .unwrap();
    hash(&URL_SAFE_NO_PAD.encode(bytes)).into()
}

/// The content that the adapter sends after `turn`: its echo, and an answer to each call.
async fn next_request(turn: &ModelTurn) -> Value {
    let far = Far::start([answer(200, "application/json", said("ok").as_bytes())]).await;
    let data = raw("{}");
    let responses: Vec<_> = turn
        .calls()
        .map(|call| FunctionResponse {
            id: call.id.as_deref(),
            name: &call.name,
            outcome: Ok(&data),
        })
        .collect();
    let contents = vec![
        Content::Text(Speaker::User, "hello"),
        Content::Turn(&turn.content, turn.served.model.as_deref()),
        Content::Responses(&responses),
    ];
    let question = Question {
        contents,
        ..Question::default()
    };
    question.ask(&patient(&far.url)).await.unwrap();
    far.seen()[0].json()
}

/// Name and id of each function response.
fn answered(content: &Value) -> Vec<(Value, Value)> {
    let parts = content["parts"].as_array().unwrap();
    let response = |part: &Value| {
        part.get("functionResponse")
            .or_else(|| part.get("function_response"))
            .cloned()
    };
    parts
        .iter()
        .filter_map(response)
        .map(|response| (response["name"].clone(), response["id"].clone()))
        .collect()
}

/// Google counts what came from a cache as a part of the prompt: it costs once, and at its own price.
#[tokio::test]
async fn a_token_from_a_cache_is_counted_in_the_prompt_and_costs_once() {
    let Some(recordings) = recordings() else { return };
    let built_in = Prices::read(Prices::BUILT_IN, "prices.toml").unwrap();
    // A token that came from no cache costs a thousand billionths.
    let price = |model: &str| {
        format!("[[models]]\nmodel = {model:?}\nvalid_from = 1970-01-01\ninput = 1\ncached = 0\noutput = 0\n")
    };
    let mut seen = 0;
    for recording in &recordings {
        let answers = match &recording.response["stream"] {
            Value::Array(chunks) => chunks.clone(),
            _ => vec![recording.response["body"].clone()],
        };
        let counts = answers.iter().map(|answer| &answer["usageMetadata"]);
        let mut counts = counts.filter(|counts| counts["cachedContentTokenCount"].is_u64());
        let Some(counts) = counts.next_back() else {
            continue;
        };
        let count = |name: &str| counts[name].as_u64().unwrap_or_default();
        let others = count("candidatesTokenCount") + count("thoughtsTokenCount") + count("toolUsePromptTokenCount");
        let prompt = count("promptTokenCount");
        assert_eq!(prompt + others, count("totalTokenCount"), "{}", recording.name);
        let (Ok(turn), _) = recording.play().await else {
            continue;
        };
        let Some(model) = &turn.served.model else { continue };
        let prices = Prices::read(&price(model), "prices.toml").unwrap().or(built_in.clone());
        let cost = prices.cost(&turn.served, &turn.usage).unwrap();
        let not_cached = prompt + count("toolUsePromptTokenCount") - count("cachedContentTokenCount");
        assert_eq!(cost.nano, not_cached * 1_000, "{}", recording.name);
        seen += 1;
    }
    assert!(seen > 0);
}

/// C-FR-002: a second request equals that of a correct client.
#[tokio::test]
async fn a_second_request_equals_that_of_a_correct_client() {
    let Some(recordings) = recordings() else { return };
    let by_name: BTreeMap<_, _> = recordings
        .iter()
        .map(|recording| (recording.name.as_str(), recording))
        .collect();
    let (mut same, mut with_calls, mut deviating) = (0, 0, Vec::new());
    for first in &recordings {
        let Some((series, number)) = first
            .name
            .rsplit_once('-')
            .and_then(|(s, n)| Some((s, n.parse::<u32>().ok()?)))
        else {
            continue;
        };
        let Some(second) = by_name.get(format!("{series}-{}", number + 1).as_str()) else {
            continue;
        };
        if !matches!(first.kind(), Kind::Unary | Kind::Stream) || !matches!(second.kind(), Kind::Unary | Kind::Stream) {
            continue;
        }
        let Some(contents) = second.request["body"]["contents"].as_array() else {
            continue;
        };
        // A client may continue after a reply that gavel rejects, and a recording may contain unrelated requests.
        let (Ok(turn), Some(place)) = (
            first.play().await.0,
            contents.iter().rposition(|content| content["role"] == "model"),
        ) else {
            continue;
        };
        let sent = next_request(&turn).await;
        let ours = &sent["contents"][1];
        let theirs = normal(&contents[place], ours);
        if let Some((_, why)) = DEVIATING.iter().find(|(name, _)| *name == second.name) {
            assert_ne!(normal(ours, ours), theirs, "{} no longer {why}", second.name);
            deviating.push(second.name.as_str());
            continue;
        }
        assert_eq!(normal(ours, ours), theirs, "{}", second.name);
        same += 1;
        let expected = answered(contents.get(place + 1).unwrap());
        let ours: Vec<_> = answered(&sent["contents"][2]);
        assert_eq!(ours.len(), expected.len(), "{}", second.name);
        for (ours, theirs) in ours.iter().zip(&expected) {
            assert_eq!(ours.0, theirs.0, "{}: names", second.name);
            // An id from the server is sent back; a client-generated id may differ.
            assert!(
                ours.1 == theirs.1 || ours.1.is_null(),
                "{}: {ours:?} {theirs:?}",
                second.name
            );
        }
        with_calls += usize::from(!ours.is_empty());
    }
    assert_eq!(
        deviating.len(),
        DEVIATING.len(),
        "some of the deviating clients were not found: {deviating:?}"
    );
    assert!(
        same >= 15 && with_calls >= 12,
        "only {same} pairs, {with_calls} of them with calls"
    );
}
