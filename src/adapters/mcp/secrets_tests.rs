//! Which texts are secret, and every form in which they are masked.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::adapters::mcp::config::McpConfig;

const TOKEN: &str = "canary-\"ä/ +0123456789";

fn secrets(entry: &serde_json::Value) -> Secrets {
    let text = serde_json::json!({"mcpServers": {"s": entry}}).to_string();
    let env = |name: &str| match name {
        "TOKEN" => Some("canary-of-a-variable".to_owned()),
        "HOME" => Some("/home/someone".to_owned()),
        _ => None,
    };
    Secrets::of(&McpConfig::from_json(&text, &env).unwrap().servers[0])
}

fn of(secret: &str) -> Secrets {
    secrets(&serde_json::json!({"command": "x", "env": {"A": secret}}))
}

#[test]
fn a_secret_is_masked_in_every_form_in_which_others_write_it() {
    let secrets = of(TOKEN);
    let json = serde_json::to_string(TOKEN).unwrap();
    for text in [
        format!("said: {TOKEN}!"),
        format!("said: {json}!"),
        format!("said: {}!", json.replace('ä', "\\u00e4")),
        format!("said: {}!", json.replace('ä', "\\u00E4").replace('/', "\\/")),
        "said: canary-%22%C3%A4%2F%20%2B0123456789!".to_owned(),
        "said: canary-%22%c3%a4%2f%20%2b0123456789!".to_owned(),
        "said: canary-%22%C3%A4%2F+%2B0123456789!".to_owned(),
        format!("said: {}!", BASE64_STANDARD.encode(format!("Bearer {TOKEN}"))),
        format!("said: {}!", BASE64_STANDARD.encode(format!("a{TOKEN}"))),
        format!("said: {}!", BASE64_STANDARD.encode(format!("ab{TOKEN}xyz"))),
    ] {
        let hidden = secrets.hide(&text);
        assert!(hidden.starts_with("said: ") && hidden.ends_with('!'), "{hidden}");
        assert!(hidden.contains("***"), "{hidden}");
        for part in ["canary", "0123456789", &BASE64_STANDARD.encode(TOKEN)[4..16]] {
            assert!(!hidden.contains(part), "{text}: {hidden}");
        }
    }
    assert!(matches!(secrets.hide("nothing here"), Cow::Borrowed(_)));
}

/// The server or an intermediary may have truncated it.
#[test]
fn the_beginning_of_a_secret_that_was_cut_is_masked() {
    let secrets = of("canary-0123456789-0123456789");
    for length in 14..=28 {
        let text = format!("said {}", &"canary-0123456789-0123456789"[..length]);
        assert_eq!(secrets.hide(&text), "said ***", "{length}");
        assert_eq!(secrets.hide(&format!("{text}… [cut]")), "said ***… [cut]", "{length}");
    }
}

#[test]
fn credentials_of_headers_and_urls_and_variables_are_secrets_and_common_words_are_not() {
    let basic = BASE64_STANDARD.encode("ann:hunter2");
    let http = secrets(&serde_json::json!({
        "url": "https://user:pa%20ss@host.example/v1/mcp/s3cr3t-token/sse?key=abcd1234&x",
        "headers": {"Authorization": format!("Basic {basic}"), "X-Key": "tiny", "Cookie": "id=0123456789ab; a=b"},
    }));
    for secret in [
        &*basic,
        "hunter2",
        "ann:hunter2",
        "pa%20ss",
        "pa ss",
        "s3cr3t-token",
        "abcd1234",
        "tiny",
        "0123456789ab",
    ] {
        assert_eq!(http.hide(&format!("<{secret}>")), "<***>", "{secret}");
    }
    assert_eq!(http.hide("host.example v1 mcp sse"), "host.example v1 mcp sse");
    let stdio = secrets(&serde_json::json!({
        "command": "x", "args": ["--token=${TOKEN}", "${HOME}/a"], "env": {"A": "short", "B": "long-enough"},
    }));
    let hidden = stdio.hide("canary-of-a-variable short long-enough /home/someone");
    assert_eq!(hidden, "*** short *** /home/someone");
}
