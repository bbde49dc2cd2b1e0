//! Requests, and the parsing of successful responses.

use gavel::adapters::gemini::{Endpoint, Gemini, GeminiConfig};
use gavel::domain::decision::Usage;
use gavel::domain::journal::{FaultKind, Part, Speaker};
use gavel::ports::model::{Content, FunctionResponse, Model, ModelSettings};
use mockito::{Matcher, Server};
use serde_json::json;

use crate::helpers::{
    KEY, MODEL, Question, USAGE, ask, assert_fault, chunk, developer, gemini, listen, quick, raw, reply, said,
};
use crate::server::{Far, Step, end_of_stream, event, events, json, open_stream, piece};

/// C-FR-001: a unary request matches the Developer API.
#[tokio::test]
async fn a_unary_request_matches_the_developer_api() {
    let mut server = Server::new_async().await;
    let mock = server
        .mock("POST", "/v1beta/models/gemini-3.8-flash:generateContent")
        .match_query(Matcher::Missing)
        .match_header("x-goog-api-key", KEY)
        .match_header("content-type", "application/json")
        .match_header("x-server-timeout", "20")
        .match_header("accept-encoding", Matcher::Missing)
        .match_body(Matcher::Json(json!({
            "systemInstruction": {"parts": [{"text": "Be useful."}]},
            "tools": [{"functionDeclarations": [{
                "name": "add_task",
                "description": "Adds a task.",
                "parametersJsonSchema": {"type": "object", "properties": {"title": {"type": "string"}}},
            }]}],
            "contents": [{"role": "user", "parts": [{"text": "add milk"}]}],
        })))
        .with_body(said("Done."))
        .create_async()
        .await;
    let gemini = gemini(&server.url());
    let turn = ask(&gemini).await.unwrap();
    mock.assert_async().await;
    assert_eq!((turn.text().as_str(), turn.model()), ("Done.", MODEL));
    let usage = Usage {
        input_tokens: 10,
        output_tokens: 3,
        thought_tokens: 2,
        cached_tokens: 0,
    };
    assert_eq!(turn.usage, usage);
    assert_eq!(gemini.default_model(), MODEL);
}

#[tokio::test]
async fn a_definitions_model_and_settings_are_used_and_the_answering_model_is_reported() {
    let far = Far::start([json(
        200,
        &reply(r#"{"text":"a"}"#, "STOP", "").replace(USAGE, r#""modelVersion":"m-001""#),
    )])
    .await;
    let question = Question {
        settings: ModelSettings {
            model: Some("models/gemini-4-argon".to_owned()),
            temperature: Some(0.5),
            max_output_tokens: Some(100),
            ..ModelSettings::default()
        },
        ..Question::default()
    };
    let turn = question.ask(&gemini(&far.url)).await.unwrap();
    assert_eq!(turn.model(), "m-001");
    let seen = &far.seen()[0];
    assert_eq!(seen.line, "POST /v1beta/models/gemini-4-argon:generateContent HTTP/1.1");
    assert_eq!(
        seen.json()["generationConfig"],
        json!({"maxOutputTokens": 100}),
        "Gemini 4 has no temperature"
    );
}

#[tokio::test]
async fn express_mode_has_its_own_path() {
    let far = Far::start([json(200, &said("a"))]).await;
    let endpoint = Endpoint::VertexExpress {
        base_url: Some(far.url.clone()),
        api_key: KEY.into(),
    };
    ask(&Gemini::new(quick(GeminiConfig::new(endpoint, MODEL))).unwrap())
        .await
        .unwrap();
    let seen = &far.seen()[0];
    assert_eq!(
        seen.line,
        "POST /v1/publishers/google/models/gemini-3.8-flash:generateContent HTTP/1.1"
    );
    assert_eq!(seen.header("x-goog-api-key"), Some(KEY));
}

/// C-FR-002: calls are returned in order with their ids, and answered in one content.
#[tokio::test]
async fn calls_come_in_order_with_their_ids_and_are_answered_in_one_content() {
    let first = reply(
        concat!(
            r#"{"text":"Let me see.","thought":true},"#,
            r#"{"functionCall":{"id":"c1","name":"add_task","args":{"title":"milk","n":1.0}},"thoughtSignature":"U/+="},"#,
            r#"{"functionCall":{"name":"list_tasks"}}"#
        ),
        "STOP",
        r#","finishMessage":"Model generated function call(s).""#,
    );
    let far = Far::start([json(200, &first), json(200, &said("Done."))]).await;
    let gemini = gemini(&far.url);
    let turn = ask(&gemini).await.unwrap();
    let calls: Vec<_> = turn
        .calls()
        .map(|call| (call.id.as_deref(), call.name.as_str(), call.args.get()))
        .collect();
    assert_eq!(
        calls,
        [
            (Some("c1"), "add_task", r#"{"title":"milk","n":1.0}"#),
            (None, "list_tasks", "{}")
        ]
    );

    let data = raw(r#"{"id":"t1"}"#);
    let responses: Vec<_> = turn
        .calls()
        .map(|call| FunctionResponse {
            id: call.id.as_deref(),
            name: &call.name,
            outcome: Ok(&data),
        })
        .collect();
    let contents = vec![
        Content::Text(Speaker::User, "add milk"),
        Content::Turn(&turn.content, turn.served.model.as_deref()),
        Content::Responses(&responses),
    ];
    let question = Question {
        contents,
        ..Question::default()
    };
    question.ask(&gemini).await.unwrap();
    let sent = far.seen()[1].body.clone();
    let sent = String::from_utf8(sent).unwrap();
    let content = first
        .split_once(r#""content":"#)
        .unwrap()
        .1
        .split_once(r#","finishReason""#)
        .unwrap()
        .0;
    assert!(sent.contains(content), "the turn goes back byte for byte");
    let sent: serde_json::Value = serde_json::from_str(&sent).unwrap();
    assert_eq!(
        sent["contents"][2],
        json!({"role": "user", "parts": [
            {"functionResponse": {"id": "c1", "name": "add_task", "response": {"output": {"untrusted_data": {"id": "t1"}}}}},
            {"functionResponse": {"name": "list_tasks", "response": {"output": {"untrusted_data": {"id": "t1"}}}}},
        ]})
    );
}

#[tokio::test]
async fn a_stream_is_delivered_as_it_arrives_and_joined_for_the_echo() {
    let far = Far::start([events(&[
        chunk(r#"{"text":"thinking","thought":true}"#),
        chunk(r#"{"text":"Hel"}"#),
        chunk(r#"{"text":"lo"}"#),
        reply(r#"{"text":"","thoughtSignature":"U/+="}"#, "STOP", ""),
    ])])
    .await;
    let (turn, received) = listen(&gemini(&far.url)).await;
    let turn = turn.unwrap();
    assert_eq!(received, ["Hel", "lo"], "unrequested thoughts are not passed on");
    assert_eq!(
        turn.content.get(),
        concat!(
            r#"{"role":"model","parts":[{"text":"thinking","thought":true},{"text":"Hello"},"#,
            r#"{"text":"","thoughtSignature":"U/+="}]}"#
        )
    );
    assert!(
        matches!(turn.parts.as_slice(), [Part::Thought(_), Part::Text(_), Part::Text(_)]),
        "{:?}",
        turn.parts
    );
    let seen = &far.seen()[0];
    assert_eq!(
        seen.line,
        "POST /v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse HTTP/1.1"
    );
}

/// D-R6: requested thoughts arrive as they are produced, separate from the text.
#[tokio::test]
async fn requested_thoughts_are_delivered_as_they_arrive_and_separate_from_text() {
    let far = Far::start([events(&[
        chunk(r#"{"text":"The user ","thought":true}"#),
        chunk(r#"{"text":"says hi.","thought":true}"#),
        chunk(r#"{"text":"Hel"}"#),
        reply(r#"{"text":"lo"}"#, "STOP", ""),
    ])])
    .await;
    let question = Question {
        thoughts: true,
        ..Question::default()
    };
    let (turn, received) = question.listen(&gemini(&far.url)).await;
    let turn = turn.unwrap();
    assert_eq!(received, ["<thought>The user ", "<thought>says hi.", "Hel", "lo"]);
    assert_eq!(turn.text(), "Hello");
    assert!(
        matches!(turn.parts.as_slice(), [Part::Thought(thought), Part::Text(_)] if thought == "The user says hi."),
        "{:?}",
        turn.parts
    );
    assert_eq!(
        far.seen()[0].json()["generationConfig"],
        json!({"thinkingConfig": {"includeThoughts": true}})
    );
}

/// D-R6: thoughts are requested only from a model that thinks, and only if they are wanted, with or without a stream.
#[tokio::test]
async fn thoughts_are_requested_only_from_models_that_think() {
    for (model, thoughts, asked) in [
        (None, true, true),
        (None, false, false),
        (Some("gemini-2.5-flash"), true, true),
        (Some("gemini-2.5-flash-lite"), true, false),
        (Some("gemini-2.0-flash"), true, false),
    ] {
        let far = Far::start([json(200, &said("a"))]).await;
        let question = Question {
            settings: ModelSettings {
                model: model.map(str::to_owned),
                ..ModelSettings::default()
            },
            thoughts,
            ..Question::default()
        };
        question.ask(&gemini(&far.url)).await.unwrap();
        let config = &far.seen()[0].json()["generationConfig"]["thinkingConfig"]["includeThoughts"];
        assert_eq!(
            *config,
            if asked { json!(true) } else { json!(null) },
            "{model:?} {thoughts}"
        );
    }
}

#[tokio::test]
async fn text_is_delivered_before_the_stream_has_ended() {
    let (received, hears) = tokio::sync::oneshot::channel();
    let mut script = open_stream();
    script.push(event(&chunk(r#"{"text":"early"}"#)));
    script.push(Step::Hang);
    let far = Far::start([script]).await;
    let gemini = gemini(&far.url);
    let mut received = Some(received);
    let mut listener = move |_: gavel::ports::model::ModelEvent<'_>| {
        if let Some(received) = received.take() {
            received.send(()).unwrap();
        }
    };
    let (functions, settings) = (crate::helpers::functions(), ModelSettings::default());
    let request = gavel::ports::model::ModelRequest {
        settings: &settings,
        system: "",
        functions: &functions,
        contents: &[Content::Text(Speaker::User, "hi")],
        mode: &gavel::ports::model::CallMode::Auto,
        holder: ("t", "u"),
        thoughts: false,
        deadline: std::time::Instant::now() + std::time::Duration::from_secs(20),
    };
    tokio::select! {
        answer = gemini.generate(request, Some(&mut listener)) => panic!("the stream has not ended: {answer:?}"),
        words = hears => words.unwrap(),
    }
    // Dropping the call closes the connection, which stops the generation.
    far.client_left().await;
}

#[tokio::test]
async fn a_stream_may_use_bare_line_feeds_arrive_in_any_pieces_or_be_an_array() {
    let one = chunk(r#"{"text":"é"}"#);
    let two = reply(r#"{"text":"!"}"#, "STOP", "");
    let whole = format!("data: {one}\n\ndata: {two}\n\n");
    let mut bytewise = open_stream();
    bytewise.extend(
        whole
            .as_bytes()
            .iter()
            .map(|byte| Step::Send([b"1\r\n", [*byte].as_slice(), b"\r\n"].concat())),
    );
    bytewise.push(end_of_stream());
    let mut array = open_stream();
    array.extend([
        piece(&format!("[{one}\r\n")),
        piece(&format!(",{two}]")),
        end_of_stream(),
    ]);
    let far = Far::start([bytewise, array]).await;
    let gemini = gemini(&far.url);
    for _ in 0..2 {
        let (turn, received) = listen(&gemini).await;
        assert_eq!(
            (turn.unwrap().text().as_str(), received.concat().as_str()),
            ("é!", "é!")
        );
    }
}

#[tokio::test]
async fn a_continued_answer_is_one_turn_and_every_hop_is_billed() {
    for stream in [false, true] {
        let hop =
            |parts: &str, token: &str| reply(parts, "CONTINUATION", &format!(r#","continuationToken":"{token}""#));
        let first = hop(r#"{"text":"one ","thoughtSignature":"QQ=="}"#, "t1");
        let second = hop(r#"{"text":"thinking","thought":true}"#, "t2");
        let third = reply(r#"{"text":"two"},{"functionCall":{"name":"add_task"}}"#, "STOP", "");
        let all = [first, second, third];
        let script: Vec<_> = match stream {
            true => all.iter().map(|hop| events(&[hop])).collect(),
            false => all.iter().map(|hop| json(200, hop)).collect(),
        };
        let far = Far::start(script).await;
        let gemini = gemini(&far.url);
        let turn = match stream {
            true => {
                let (turn, received) = listen(&gemini).await;
                assert_eq!(received, ["one ", "two"]);
                turn.unwrap()
            }
            false => ask(&gemini).await.unwrap(),
        };
        assert_eq!(
            turn.content.get(),
            concat!(
                r#"{"role":"model","parts":[{"text":"one ","thoughtSignature":"QQ=="},{"text":"thinking","thought":true},"#,
                r#"{"text":"two"},{"functionCall":{"name":"add_task"}}]}"#
            )
        );
        assert_eq!((turn.usage.input_tokens, turn.usage.output_tokens), (30, 9));
        let last = String::from_utf8(far.seen()[2].body.clone()).unwrap();
        assert_eq!(last.matches("continuationToken").count(), 1, "the last token alone");
        let sent: Vec<_> = far.seen().iter().map(|seen| seen.json()).collect();
        for (request, token) in sent[1..].iter().zip(["t1", "t2"]) {
            let mut expected = sent[0].clone();
            expected["continuationToken"] = token.into();
            assert_eq!(*request, expected, "the same request and the token, no partial answer");
        }
    }
}

#[tokio::test]
async fn an_answer_that_never_completes_is_abandoned() {
    let hop = reply(r#"{"text":"a"}"#, "CONTINUATION", r#","continuationToken":"t""#);
    let far = Far::start(std::iter::repeat_n(json(200, &hop), 100)).await;
    assert_fault(ask(&gemini(&far.url)).await, FaultKind::Malformed, "not complete", 16);
}

#[tokio::test]
async fn a_long_answer_of_gemini_4_is_streamed_because_a_unary_one_would_be_refused() {
    let far = Far::start([events(&[said("a")]), json(200, &said("a"))]).await;
    let gemini = gemini(&far.url);
    for (most, method) in [(32_769, ":streamGenerateContent?alt=sse"), (32_768, ":generateContent")] {
        let question = Question {
            settings: ModelSettings {
                model: Some("gemini-4-carbon".to_owned()),
                max_output_tokens: Some(most),
                ..ModelSettings::default()
            },
            ..Question::default()
        };
        question.ask(&gemini).await.unwrap();
        assert!(far.seen().last().unwrap().line.contains(method));
    }
}

#[tokio::test]
async fn requests_share_a_connection_and_the_prefix_of_their_bytes() {
    let far = Far::start([json(200, &said("a")), json(200, &said("b"))]).await;
    let gemini = Gemini::new(developer(&far.url)).unwrap();
    ask(&gemini).await.unwrap();
    let question = Question {
        contents: vec![Content::Text(Speaker::User, "something else")],
        ..Question::default()
    };
    question.ask(&gemini).await.unwrap();
    let bodies: Vec<_> = far
        .seen()
        .iter()
        .map(|seen| String::from_utf8(seen.body.clone()).unwrap())
        .collect();
    let head = |body: &str| body.split_once(r#""contents""#).unwrap().0.to_owned();
    assert_eq!(head(&bodies[0]), head(&bodies[1]));
}
