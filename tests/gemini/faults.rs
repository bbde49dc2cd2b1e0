//! Failures: which are retried, how often, and the final fault.

use std::time::{Duration, Instant};

use gavel::adapters::gemini::{BreakerSettings, BreakerState, Gemini, GeminiConfig, RetrySettings};
use gavel::domain::journal::FaultKind;

use crate::helpers::{Question, ask, assert_fault, chunk, developer, error, gemini, listen, reply, said};
use crate::server::{Far, Step, end_of_stream, event, events, json, open_stream, piece};

const GARBLED: &str = r#"{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL","finishMessage":"Malformed function call: x"}],"usageMetadata":{"promptTokenCount":10}}"#;

fn retry_info(delay: &str) -> String {
    format!(r#"{{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"{delay}"}}"#)
}

/// C-EC-1: a transient failure is tried three times in all.
#[tokio::test]
async fn a_transient_failure_is_tried_three_times_in_all() {
    for status in [408, 429, 500, 502, 503, 504] {
        let failing = json(status, &error(status, "BUSY", ""));
        let far = Far::start([failing.clone(), failing.clone(), json(200, &said("Done."))]).await;
        assert_eq!(ask(&gemini(&far.url)).await.unwrap().text(), "Done.", "{status}");

        let far = Far::start([
            failing.clone(),
            failing.clone(),
            failing.clone(),
            json(200, &said("late")),
        ])
        .await;
        let words = format!("{status} BUSY: It went wrong.; given up after attempt 3");
        let kind = match status {
            429 => FaultKind::Quota,
            _ => FaultKind::Unavailable,
        };
        assert_fault(ask(&gemini(&far.url)).await, kind, &words, 3);
        assert_eq!(far.seen().len(), 3, "{status}");
    }
}

/// Each fault names its cause: key, permission, model, quota or the request.
#[tokio::test]
async fn a_permanent_failure_is_not_retried() {
    let daily = r#"{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"RequestsPerDayPerModel"}]}"#;
    let daily = format!("{daily},{}", retry_info("0.001s"));
    let key = r#"{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID"}"#;
    for (status, details, words, kind) in [
        (400, key, "400 X API_KEY_INVALID", FaultKind::Credentials),
        (400, "", "400 X", FaultKind::Rejected),
        (401, "", "401 X", FaultKind::Credentials),
        (403, "", "403 X", FaultKind::Permission),
        (404, "", "404 X", FaultKind::NoSuchModel),
        (409, "", "409 X", FaultKind::Rejected),
        (
            429,
            daily.as_str(),
            "429 X quota=RequestsPerDayPerModel",
            FaultKind::Quota,
        ),
        (501, "", "501 X", FaultKind::Unavailable),
    ] {
        let far = Far::start([json(status, &error(status, "X", details)), json(200, &said("late"))]).await;
        assert_fault(ask(&gemini(&far.url)).await, kind, words, 1);
        assert_eq!(far.seen().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn the_providers_retry_delay_is_respected() {
    let body = error(429, "RESOURCE_EXHAUSTED", &retry_info("0.08s"));
    let far = Far::start([json(429, &body), json(200, &said("Done."))]).await;
    let begun = Instant::now();
    ask(&gemini(&far.url)).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(80), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_wait_beyond_the_deadline_fails_at_once() {
    let body = error(429, "RESOURCE_EXHAUSTED", &retry_info("48s"));
    let far = Far::start([json(429, &body), json(200, &said("late"))]).await;
    let begun = Instant::now();
    let words = "the next attempt, in 48";
    assert_fault(ask(&gemini(&far.url)).await, FaultKind::Quota, words, 1);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

/// C-EC-2: a malformed function call is requested once more.
#[tokio::test]
async fn a_malformed_function_call_is_retried_once() {
    let far = Far::start([json(200, GARBLED), json(200, &said("Done."))]).await;
    let turn = ask(&gemini(&far.url)).await.unwrap();
    assert_eq!(
        (turn.text().as_str(), turn.usage.input_tokens),
        ("Done.", 20),
        "both are billed"
    );

    let nameless = reply(r#"{"functionCall":{"args":{}}}"#, "STOP", "");
    let far = Far::start([json(200, GARBLED), json(200, &nameless), json(200, &said("late"))]).await;
    let fault = assert_fault(ask(&gemini(&far.url)).await, FaultKind::Malformed, "no name", 2);
    assert_eq!(fault.usage.input_tokens, 20);
}

/// C-EC-2: an empty answer is requested once more. The second answer counts, whatever it is.
#[tokio::test]
async fn an_empty_answer_is_retried_once() {
    for (part, says) in [
        (r#"{"text":" \n"}"#, "empty"),
        (r#"{"text":"hm","thought":true}"#, "empty: the model only thought"),
        ("{}", "empty"),
        (r#"{"text":"\u200b\u2060\ufeff"}"#, "invisible"),
        (
            r#"{"text":"```tool_code\nprint(add_task(description='milk'))\n```"}"#,
            "as text",
        ),
    ] {
        let nothing = reply(part, "STOP", "");
        let far = Far::start([json(200, &nothing), json(200, &said("Done."))]).await;
        assert_eq!(ask(&gemini(&far.url)).await.unwrap().text(), "Done.", "{part}");

        let far = Far::start([json(200, &nothing), json(200, &nothing), json(200, &said("late"))]).await;
        assert_fault(ask(&gemini(&far.url)).await, FaultKind::Malformed, says, 2);
        assert_eq!(far.seen().len(), 2, "{part}");
    }
}

/// C-EC-2: blocked and unknown answers are neither retried nor run.
#[tokio::test]
async fn blocked_and_unknown_answers_are_not_repeated_and_not_run() {
    let call = r#"{"functionCall":{"name":"add_task","args":{}}}"#;
    for (body, kind, words) in [
        (
            r#"{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"}}"#.to_owned(),
            FaultKind::Blocked,
            "PROHIBITED_CONTENT",
        ),
        (reply(call, "SAFETY", ""), FaultKind::Blocked, "SAFETY"),
        (reply(call, "MAX_TOKENS", ""), FaultKind::Malformed, "MAX_TOKENS"),
        (
            reply(call, "UNEXPECTED_TOOL_CALL", ""),
            FaultKind::Malformed,
            "UNEXPECTED_TOOL_CALL",
        ),
        (reply(call, "BRAND_NEW", ""), FaultKind::Malformed, "BRAND_NEW"),
        (chunk(call), FaultKind::Malformed, "cut off"),
        ("{}".to_owned(), FaultKind::Malformed, "no candidate"),
        ("[]".to_owned(), FaultKind::Malformed, "unexpected JSON"),
        ("not JSON".to_owned(), FaultKind::Malformed, "invalid JSON"),
        (String::new(), FaultKind::Malformed, "cut off after 0 bytes"),
        (
            reply(call, "STOP", "").split_at(40).0.to_owned(),
            FaultKind::Malformed,
            "cut off after 40 bytes",
        ),
    ] {
        let far = Far::start([json(200, &body), json(200, &said("late"))]).await;
        assert_fault(ask(&gemini(&far.url)).await, kind, words, 1);
        assert_eq!(far.seen().len(), 1, "{body}");
    }
}

#[tokio::test]
async fn an_error_without_its_body_is_still_an_error() {
    let head = b"HTTP/1.1 503 X\r\ncontent-length: 100\r\n\r\n{".to_vec();
    let far = Far::start([vec![Step::Send(head), Step::Hang], json(200, &said("Done."))]).await;
    let begun = Instant::now();
    assert_eq!(ask(&gemini(&far.url)).await.unwrap().text(), "Done.");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn an_error_under_http_200_is_an_error() {
    let far = Far::start([json(200, &error(503, "UNAVAILABLE", "")), json(200, &said("Done."))]).await;
    assert_eq!(ask(&gemini(&far.url)).await.unwrap().text(), "Done.");
}

#[tokio::test]
async fn a_stream_that_breaks_after_text_is_reset_and_repeated() {
    let broken = |end: Vec<Step>| {
        let mut script = open_stream();
        script.push(event(&format!(r#"{{"candidates":[{{"content":{{"parts":[{{"text":"Hel"}}]}}}}],"usageMetadata":{{"promptTokenCount":{}}}}}"#, 7)));
        script.extend(end);
        script
    };
    let cancelled = error(499, "CANCELLED", "");
    for end in [
        vec![Step::Reset],
        vec![Step::Close],
        vec![event(&error(503, "UNAVAILABLE", "")), end_of_stream()],
        vec![piece(&cancelled), end_of_stream()],
        vec![piece(&format!("[{cancelled}]")), end_of_stream()],
    ] {
        let far = Far::start([broken(end.clone()), events(&[said("Hello")])]).await;
        let (turn, received) = listen(&gemini(&far.url)).await;
        let turn = turn.unwrap();
        assert_eq!(
            (turn.text().as_str(), turn.usage.input_tokens),
            ("Hello", 17),
            "{end:?}"
        );
        assert_eq!(received, ["Hel", "<reset>", "Hello"], "{end:?}");
    }
}

#[tokio::test]
async fn a_stream_that_breaks_before_any_text_is_repeated_without_a_reset() {
    for end in [vec![Step::Reset], vec![end_of_stream()]] {
        let mut script = open_stream();
        script.push(event(r#"{"usageMetadata":{"promptTokenCount":7}}"#));
        script.extend(end);
        let far = Far::start([script, events(&[said("Hello")])]).await;
        let (turn, received) = listen(&gemini(&far.url)).await;
        assert_eq!(turn.unwrap().text(), "Hello");
        assert_eq!(received, ["Hello"]);
    }
}

#[tokio::test]
async fn a_stream_that_ends_without_a_finish_reason_after_text_is_truncated_and_not_repeated() {
    let far = Far::start([events(&[chunk(r#"{"text":"Hel"}"#)]), events(&[said("late")])]).await;
    let (answer, received) = listen(&gemini(&far.url)).await;
    let fault = assert_fault(answer, FaultKind::Malformed, "cut off", 1);
    assert_eq!((received, fault.said.as_deref()), (vec!["Hel".to_owned()], Some("Hel")));
}

#[tokio::test]
async fn when_a_later_hop_breaks_the_text_of_finished_hops_is_sent_again() {
    let first = reply(r#"{"text":"one "}"#, "CONTINUATION", r#","continuationToken":"t""#);
    let mut broken = open_stream();
    broken.extend([event(&chunk(r#"{"text":"tw"}"#)), Step::Reset]);
    let far = Far::start([events(&[first]), broken, events(&[said("two")])]).await;
    let (turn, received) = listen(&gemini(&far.url)).await;
    assert_eq!(turn.unwrap().text(), "one two");
    assert_eq!(received, ["one ", "tw", "<reset>", "one ", "two"]);
    assert_eq!(far.seen()[2].json()["continuationToken"], "t");
}

/// D-R6: thoughts are reset with the attempt that they came from, even if it produced nothing else.
#[tokio::test]
async fn a_stream_that_breaks_after_thoughts_is_reset_and_repeated() {
    let thought = |text: &str| format!(r#"{{"text":"{text}","thought":true}}"#);
    let broken = |text: &str| {
        let mut script = open_stream();
        script.extend([event(&chunk(&thought(text))), Step::Reset]);
        script
    };
    let question = Question {
        thoughts: true,
        ..Question::default()
    };
    let whole = reply(&format!(r#"{},{{"text":"Done."}}"#, thought("Hm.")), "STOP", "");
    let far = Far::start([broken("Hm"), events(&[whole])]).await;
    let (turn, received) = question.listen(&gemini(&far.url)).await;
    assert_eq!(turn.unwrap().text(), "Done.");
    assert_eq!(received, ["<thought>Hm", "<reset>", "<thought>Hm.", "Done."]);

    // Those of a finished hop are final, and are sent again.
    let parts = format!(r#"{},{{"text":"one "}}"#, thought("First."));
    let first = reply(&parts, "CONTINUATION", r#","continuationToken":"t""#);
    let far = Far::start([events(&[first]), broken("Sec"), events(&[said("two")])]).await;
    let (turn, received) = question.listen(&gemini(&far.url)).await;
    assert_eq!(turn.unwrap().text(), "one two");
    assert_eq!(
        received,
        [
            "<thought>First.",
            "one ",
            "<thought>Sec",
            "<reset>",
            "<thought>First.",
            "one ",
            "two"
        ]
    );
}

/// C-EC-1: a refused or broken connection is retried, and then reported as unavailable.
#[tokio::test]
async fn a_refused_or_broken_connection_is_retried_and_then_unavailable() {
    let far = Far::start([vec![Step::Reset], vec![Step::Close], json(200, &said("Done."))]).await;
    assert_eq!(ask(&gemini(&far.url)).await.unwrap().text(), "Done.");

    let cut = Step::Send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{\"candidates\"".to_vec());
    let far = Far::start(std::iter::repeat_n(vec![cut, Step::Close], 3)).await;
    assert_fault(
        ask(&gemini(&far.url)).await,
        FaultKind::Unavailable,
        "given up after attempt 3",
        3,
    );

    let closed = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let fault = ask(&gemini(&format!("http://{closed}"))).await;
    let fault = assert_fault(fault, FaultKind::Unavailable, "given up after attempt 3", 3);
    assert!(
        !fault.detail.contains("127.0.0.1"),
        "the address of the endpoint is not in the error: {}",
        fault.detail
    );
}

/// C-EC-1: a host name that does not resolve is unavailable.
#[tokio::test]
async fn a_name_that_does_not_exist_is_unavailable() {
    let question = Question {
        within: Duration::from_secs(10),
        ..Question::default()
    };
    let fault = question.ask(&gemini("http://gavel-test.invalid")).await.unwrap_err();
    // Without a network, the resolver may also time out.
    assert!(
        matches!(fault.kind, FaultKind::Unavailable | FaultKind::Timeout),
        "{fault:?}"
    );
}

#[tokio::test]
async fn a_redirect_is_not_followed_so_the_key_is_not_sent_elsewhere() {
    let elsewhere = Far::start([json(200, &said("stolen"))]).await;
    let redirect = format!(
        "HTTP/1.1 307 X\r\nlocation: {}/x\r\ncontent-length: 0\r\n\r\n",
        elsewhere.url
    );
    let far = Far::start([vec![Step::Send(redirect.into_bytes())]]).await;
    assert_fault(ask(&gemini(&far.url)).await, FaultKind::Unavailable, "answered 307", 1);
    assert!(elsewhere.seen().is_empty());
}

/// C-SC-7: the breaker opens, rejects calls at once, and closes after a successful probe.
#[tokio::test]
async fn the_breaker_opens_refuses_at_once_and_closes_after_a_good_probe() {
    let config = |url: &str, open_for| GeminiConfig {
        breaker: BreakerSettings { failures: 3, open_for },
        ..developer(url)
    };
    let failing = json(503, &error(503, "UNAVAILABLE", ""));
    let far = Far::start(std::iter::repeat_n(failing.clone(), 3)).await;
    let gemini = Gemini::new(config(&far.url, Duration::from_secs(60))).unwrap();
    assert_eq!(gemini.state(), BreakerState::Closed);
    assert_fault(ask(&gemini).await, FaultKind::Unavailable, "503", 3);
    assert_eq!(gemini.state(), BreakerState::Open);
    assert_fault(ask(&gemini).await, FaultKind::Unavailable, "breaker is open", 0);
    assert_eq!(far.seen().len(), 3, "nothing is sent while it is open");

    let script = [failing.clone(), failing.clone(), failing, json(200, &said("Back."))];
    let far = Far::start(script).await;
    let gemini = Gemini::new(config(&far.url, Duration::ZERO)).unwrap();
    assert_fault(ask(&gemini).await, FaultKind::Unavailable, "503", 3);
    assert_eq!(gemini.state(), BreakerState::HalfOpen);
    assert_eq!(ask(&gemini).await.unwrap().text(), "Back.");
    assert_eq!(gemini.state(), BreakerState::Closed);
}

#[tokio::test]
async fn a_rejected_request_does_not_count_against_the_endpoint() {
    let config = |url: &str| GeminiConfig {
        breaker: BreakerSettings {
            failures: 1,
            open_for: Duration::from_secs(60),
        },
        ..developer(url)
    };
    for status in [400, 403, 404] {
        let far = Far::start([json(status, &error(status, "X", ""))]).await;
        let gemini = Gemini::new(config(&far.url)).unwrap();
        ask(&gemini).await.unwrap_err();
        assert_eq!(gemini.state(), BreakerState::Closed, "{status}");
    }
}

#[tokio::test]
async fn when_the_retry_budget_is_exhausted_nothing_is_retried() {
    let failing = json(503, &error(503, "UNAVAILABLE", ""));
    let far = Far::start(std::iter::repeat_n(failing, 9)).await;
    let config = developer(&far.url);
    let retry = RetrySettings {
        budget_reserve: 2,
        ..config.retry
    };
    let gemini = Gemini::new(GeminiConfig { retry, ..config }).unwrap();
    assert_fault(
        ask(&gemini).await,
        FaultKind::Unavailable,
        "given up after attempt 3",
        3,
    );
    assert_fault(
        ask(&gemini).await,
        FaultKind::Unavailable,
        "the retry budget is exhausted",
        1,
    );
}
