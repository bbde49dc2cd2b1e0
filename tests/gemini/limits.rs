//! Slow, endless and oversized responses: time and memory stay bounded.

use std::time::{Duration, Instant};

use gavel::adapters::gemini::{Gemini, GeminiConfig, RetrySettings, Timeouts};
use gavel::domain::definition::{ModelSettings, ThinkingLevel};
use gavel::domain::journal::FaultKind;

use crate::helpers::{Question, SHORT, ask, assert_fault, chunk, developer, gemini, listen, reply, said};
use crate::server::{Far, Step, end_of_stream, event, json, open_stream};

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
const MEBI: usize = 1024 * 1024;

fn short_waits(url: &str) -> GeminiConfig {
    let config = developer(url);
    GeminiConfig {
        timeouts: Timeouts {
            first_byte: SHORT,
            idle: SHORT,
            ..config.timeouts
        },
        retry: RetrySettings {
            max_attempts: 1,
            ..config.retry
        },
        ..config
    }
}

fn hasty() -> Question<'static> {
    Question {
        within: SHORT,
        ..Question::default()
    }
}

/// C-EC-1: a hang ends at the deadline, at any point of the exchange.
#[tokio::test]
async fn a_hang_at_any_point_ends_at_the_deadline() {
    let part_of_head = vec![Step::Send(HEAD.to_vec()), Step::Hang];
    let part_of_body = vec![Step::Send([HEAD, b"content-length: 100\r\n\r\n{"].concat()), Step::Hang];
    let slow_head = vec![
        Step::Send(HEAD.to_vec()),
        Step::Drip(b"x-a: b\r\n".to_vec(), Duration::from_millis(5)),
    ];
    let slow_body = vec![
        Step::Send([HEAD, b"content-length: 1000000\r\n\r\n"].concat()),
        Step::Drip(b" ".to_vec(), Duration::from_millis(5)),
    ];
    for script in [vec![Step::Hang], part_of_head, part_of_body, slow_head, slow_body] {
        let far = Far::start([script.clone()]).await;
        let begun = Instant::now();
        let fault = hasty().ask(&gemini(&far.url)).await.unwrap_err();
        assert_eq!(fault.kind, FaultKind::Timeout, "{script:?}: {fault:?}");
        assert!(
            (SHORT..Duration::from_secs(5)).contains(&begun.elapsed()),
            "{script:?}: {:?}",
            begun.elapsed()
        );
        far.client_left().await;
    }
}

/// C-EC-1: silence before and within a response has its own limit.
#[tokio::test]
async fn silence_before_and_in_an_answer_has_its_own_limit() {
    let far = Far::start([vec![Step::Hang]]).await;
    let gemini = Gemini::new(short_waits(&far.url)).unwrap();
    assert_fault(ask(&gemini).await, FaultKind::Timeout, "no answer within 150ms", 1);

    let mut script = open_stream();
    script.extend([event(&chunk(r#"{"text":"Hel"}"#)), Step::Hang]);
    let far = Far::start([script]).await;
    let gemini = Gemini::new(short_waits(&far.url)).unwrap();
    let (answer, received) = listen(&gemini).await;
    assert_fault(answer, FaultKind::Timeout, "nothing more within 150ms", 1);
    assert_eq!(received, ["Hel"]);
}

/// A reply that is not streamed begins when the model has finished, minutes after the request at a high level.
#[tokio::test]
async fn a_model_that_thinks_long_may_answer_until_the_deadline() {
    for (model, level, waits) in [
        ("gemini-4-neon", None, true),
        ("gemini-4-argon", Some(ThinkingLevel::Low), true),
        ("gemini-3.8-flash", Some(ThinkingLevel::High), true),
        ("gemini-3.8-flash", None, false),
    ] {
        let mut late = vec![Step::Pause(SHORT * 3)];
        late.extend(json(200, &said("Done.")));
        let far = Far::start([late]).await;
        let question = Question {
            settings: ModelSettings {
                model: Some(model.to_owned()),
                thinking_level: level,
                ..ModelSettings::default()
            },
            ..Question::default()
        };
        let answer = question.ask(&Gemini::new(short_waits(&far.url)).unwrap()).await;
        assert_eq!(answer.is_ok(), waits, "{model} {level:?}: {answer:?}");
    }
}

/// A stream is silent while its model thinks, at times but for a summary of its thoughts. Once it answers, silence means
/// that it has stopped.
#[tokio::test]
async fn the_stream_of_a_model_that_thinks_long_may_be_silent_until_it_answers() {
    let thought = event(&chunk(r#"{"text":"Hm.","thought":true}"#));
    let nothing = event(&chunk(r#"{"text":""}"#));
    let answer = event(&said("Done."));
    let call = event(&chunk(r#"{"functionCall":{"name":"add_task","args":{}}}"#));
    let silence = || Step::Pause(SHORT * 3);
    for (model, script, ends) in [
        (
            "gemini-4-neon",
            vec![silence(), answer.clone(), end_of_stream()],
            Ok(()),
        ),
        (
            "gemini-4-neon",
            vec![
                thought.clone(),
                silence(),
                nothing,
                silence(),
                answer.clone(),
                end_of_stream(),
            ],
            Ok(()),
        ),
        (
            "gemini-4-neon",
            vec![silence(), event(&chunk(r#"{"text":"Hel"}"#)), Step::Hang],
            Err(SHORT),
        ),
        ("gemini-4-neon", vec![silence(), call, Step::Hang], Err(SHORT)),
        ("gemini-4-neon", vec![thought.clone(), Step::Hang], Err(SHORT * 8)),
        ("gemini-3.8-flash", vec![silence(), answer], Err(SHORT)),
        ("gemini-3.8-flash", vec![thought, Step::Hang], Err(SHORT)),
    ] {
        let far = Far::start([[open_stream(), script.clone()].concat()]).await;
        let question = Question {
            settings: ModelSettings {
                model: Some(model.to_owned()),
                ..ModelSettings::default()
            },
            within: SHORT * 8,
            ..Question::default()
        };
        let (answer, _) = question.listen(&Gemini::new(short_waits(&far.url)).unwrap()).await;
        let detail = answer.map(|_| ()).map_err(|fault| fault.detail);
        match ends {
            Ok(()) => assert_eq!(detail, Ok(()), "{model}: {script:?}"),
            Err(SHORT) => assert!(
                detail
                    .as_ref()
                    .is_err_and(|detail| detail.contains("nothing more within 150ms")),
                "{model}: {script:?}: {detail:?}"
            ),
            Err(_) => assert!(
                detail.as_ref().is_err_and(|detail| detail.contains("deadline")),
                "{model}: {script:?}: {detail:?}"
            ),
        }
    }
}

#[tokio::test]
async fn a_deadline_that_has_passed_sends_nothing() {
    let far = Far::start([json(200, &said("late"))]).await;
    let question = Question {
        within: Duration::ZERO,
        ..Question::default()
    };
    let fault = question.ask(&gemini(&far.url)).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Timeout);
    assert!(far.seen().is_empty());
}

/// C-EC-2: a response of 50 MB is not read to its end.
#[tokio::test]
async fn fifty_megabytes_are_not_read() {
    let announced = vec![
        Step::Send([HEAD, b"content-length: 52428800\r\n\r\n"].concat()),
        Step::Flood(vec![b' '; 64 * 1024], 800),
    ];
    let chunked = vec![
        Step::Send([HEAD, b"transfer-encoding: chunked\r\n\r\n"].concat()),
        Step::Flood([b"10000\r\n".as_slice(), &vec![b' '; 64 * 1024], b"\r\n"].concat(), 800),
    ];
    let only_announced = vec![
        Step::Send([HEAD, b"content-length: 52428800\r\n\r\n"].concat()),
        Step::Hang,
    ];
    for (script, stream) in [
        (only_announced, false),
        (announced, false),
        (chunked.clone(), false),
        (chunked, true),
    ] {
        let far = Far::start([script]).await;
        let gemini = gemini(&far.url);
        let answer = if stream {
            listen(&gemini).await.0
        } else {
            ask(&gemini).await
        };
        assert_fault(answer, FaultKind::Malformed, "larger than 8388608 bytes", 1);
        far.client_left().await;
        // The data beyond the limit was in the socket's buffers.
        assert!(far.sent() < 24 * MEBI, "{} bytes went out", far.sent());
    }
}

/// C-EC-2: a large response within the limit is read completely.
#[tokio::test]
async fn a_large_response_within_the_limit_is_complete() {
    let words = "word ".repeat(MEBI);
    let far = Far::start([json(200, &said(&words)), crate::server::events(&[said(&words)])]).await;
    let gemini = gemini(&far.url);
    assert_eq!(ask(&gemini).await.unwrap().text(), words);
    assert_eq!(listen(&gemini).await.0.unwrap().text(), words);
}

/// C-EC-2: a deeply nested response is refused.
#[tokio::test]
async fn deep_nesting_is_refused() {
    for levels in [200, 1_000_000] {
        let args = format!("{}{}", r#"{"a":"#.repeat(levels) + "1", "}".repeat(levels));
        let body = reply(
            &format!(r#"{{"functionCall":{{"name":"add_task","args":{args}}}}}"#),
            "STOP",
            "",
        );
        let far = Far::start([
            json(200, &body),
            crate::server::events(std::slice::from_ref(&body)),
            json(400, &body),
        ])
        .await;
        let gemini = gemini(&far.url);
        assert_fault(ask(&gemini).await, FaultKind::Malformed, "nested deeper", 1);
        assert_fault(listen(&gemini).await.0, FaultKind::Malformed, "nested deeper", 1);
        assert_fault(ask(&gemini).await, FaultKind::Rejected, "400", 1);
    }
}

#[tokio::test]
async fn an_unrequested_compressed_response_is_malformed() {
    let body = [
        0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 171, 174, 5, 0, 67, 191, 166, 163, 2, 0, 0, 0,
    ];
    let head = [HEAD, b"content-encoding: gzip\r\ncontent-length: 22\r\n\r\n"].concat();
    let far = Far::start([vec![Step::Send([head.as_slice(), &body].concat())]]).await;
    assert_fault(ask(&gemini(&far.url)).await, FaultKind::Malformed, "invalid JSON", 1);
    assert_eq!(far.seen()[0].header("accept-encoding"), None);
}
