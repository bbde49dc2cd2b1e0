//! What is read from an error body, and which of its text may be repeated.
#![allow(clippy::unwrap_used)]

use super::*;

fn error(code: u16, message: &str, details: &str) -> ApiError {
    let message = serde_json::to_string(message).unwrap();
    let body = format!(r#"{{"error":{{"code":{code},"message":{message},"status":"S","details":[{details}]}}}}"#);
    ApiError::of_body(code, body.as_bytes())
}

const RETRY: &str = r#"{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.4s"}"#;

#[test]
fn the_time_to_come_back_is_read_from_the_details_or_from_the_words() {
    assert_eq!(error(429, "", RETRY).retry_after, Some(Duration::from_secs_f64(34.4)));
    assert_eq!(
        error(429, "Please retry in 7s.", "").retry_after,
        Some(Duration::from_secs(7))
    );
    assert_eq!(
        error(429, "Please retry in 120.5ms.", "").retry_after,
        Some(Duration::from_micros(120_500))
    );
    for odd in [
        "Please retry in soon",
        "Please retry in 5",
        "Please retry in 5 minutes",
        "Please retry in ..s",
    ] {
        assert_eq!(error(429, odd, "").retry_after, None, "{odd}");
    }
    assert_eq!(
        error(429, "Please retry in 99999999999999999999s", "").retry_after,
        Some(Duration::from_secs(86_400))
    );
}

#[test]
fn a_daily_or_empty_quota_is_not_waited_for_though_it_names_a_delay() {
    let daily = r#"{"@type":"x/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerDayPerProject","quotaValue":"50"}]}"#;
    let empty = r#"{"@type":"x/google.rpc.QuotaFailure","violations":[{"quotaId":"PerMinute","quotaValue":"0"}]}"#;
    let minute = r#"{"@type":"x/google.rpc.QuotaFailure","violations":[{"quotaId":"PerMinute","quotaValue":"10"}]}"#;
    let long = r#"{"@type":"x/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateContentPaidTierInputTokensPerModelPerProjectPerDay"}]}"#;
    let retry = |details: &str, message: &str| {
        error(429, message, &format!("{details},{RETRY}"))
            .into_failure(false)
            .retry
    };
    assert_eq!(retry(daily, ""), Retry::No);
    assert_eq!(retry(long, ""), Retry::No);
    assert_eq!(retry(empty, ""), Retry::No);
    assert_eq!(retry(minute, "Quota exceeded, limit: 0, model: m"), Retry::No);
    assert_eq!(retry(minute, "Quota exceeded, limit: 0"), Retry::No);
    for some in ["limit: 10", "limit: 05", "limit: 0.5"] {
        assert_eq!(
            retry(minute, some),
            Retry::After(Duration::from_secs_f64(34.4)),
            "{some}"
        );
    }
}

#[test]
fn an_array_of_one_is_read_and_anything_else_gives_the_status_alone() {
    let read = ApiError::of_body(503, br#"[{"error":{"code":503,"status":"UNAVAILABLE"}}]"#);
    assert_eq!(read.to_string(), "Gemini answered 503 UNAVAILABLE");
    let html = ApiError::of_body(502, b"<html>secret</html>").to_string();
    assert_eq!(html, "Gemini answered 502: the body (19 bytes) is not a Google error");
}

#[test]
fn a_bad_request_is_reported_only_in_known_words_and_without_what_it_quotes() {
    let known = error(400, "Invalid value at 'contents[0]' (TYPE), \"my secret diary\"", "");
    assert_eq!(
        known.to_string(),
        "Gemini answered 400 S: Invalid value at 'contents[0]' (TYPE), \"…\""
    );
    let open = error(400, "Invalid value at 'a', \"my secret diary", "");
    assert!(!open.to_string().contains("diary"));
    let unknown = error(400, "I do not like: my secret diary", "");
    assert_eq!(unknown.to_string(), "Gemini answered 400 S");
    let without_code = ApiError::of_body(400, br#"{"error":{"message":"my secret diary"}}"#).to_string();
    assert_eq!(without_code, "Gemini answered 400");
    assert_eq!(
        ApiError::of_text(r#"{"message":"my secret diary"}"#).to_string(),
        "Gemini answered 0"
    );
    let field =
        r#"{"@type":"x/google.rpc.BadRequest","fieldViolations":[{"field":"tools[0].x","description":"my diary"}]}"#;
    assert_eq!(
        error(400, "my diary", field).to_string(),
        "Gemini answered 400 S field=tools[0].x"
    );
}

#[test]
fn keys_are_blanked_and_long_texts_cut() {
    for key in [
        format!("AIzaSy{}", "a1B2-_".repeat(6)),
        format!("AQ.{}", "a1B2-_".repeat(8)),
        "AQ.Ab8RN6L-short".to_owned(),
        "AIzaShort".to_owned(),
        format!("AQ.letters_only.{}", "abCD".repeat(10)),
    ] {
        let reported = error(403, &format!("consumer api_key:{key} is\n\n\u{7}suspended"), "").to_string();
        assert_eq!(reported, "Gemini answered 403 S: consumer api_key:… is suspended");
    }
    assert_eq!(sanitize("see FAQ. AQ. is no key"), "see FAQ. AQ. is no key");
    assert_eq!(sanitize(&"word ".repeat(500)).chars().count(), 200);
}

#[test]
fn only_what_may_pass_is_repeated() {
    for (code, repeated) in [
        (400, false),
        (401, false),
        (403, false),
        (404, false),
        (408, true),
        (409, false),
        (429, true),
        (499, true),
        (500, true),
        (501, false),
        (502, true),
        (503, true),
        (504, true),
        (0, false),
    ] {
        let retry = error(code, "", "").into_failure(false).retry;
        assert_eq!(retry == Retry::Backoff, repeated, "{code}");
    }
    assert_eq!(error(401, "", "").into_failure(true).retry, Retry::Reauthenticate);
}
