//! Which texts are secret, and every form in which they are masked.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::config::McpConfig;

const TOKEN: &str = "canary-\"ä/ +0123456789";

fn secrets(entry: &serde_json::Value) -> Secrets {
    let text = serde_json::json!({"mcpServers": {"s": entry}}).to_string();
    let env = |name: &str| match name {
        "TOKEN" => Some("canary-of-a-variable".to_owned()),
        "HOME" => Some("/home/someone".to_owned()),
        _ => None,
    };
    Secrets::of(&McpConfig::from_file("mcp.json", &text, &env).unwrap().servers[0])
}

fn of(secret: &str) -> Secrets {
    secrets(&serde_json::json!({"command": "x", "env": {"API_TOKEN": secret}}))
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
        "command": "x", "args": ["--token=${TOKEN}", "${HOME}/a"], "env": {"A_KEY": "short", "B_KEY": "long-enough"},
    }));
    let hidden = stdio.hide("canary-of-a-variable short long-enough /home/someone");
    assert_eq!(hidden, "*** short *** /home/someone");
}

/// A model must be able to read what a server permits. Only a name or a form that says so makes a value secret.
#[test]
fn only_values_that_are_secret_by_their_name_or_form_are_masked() {
    let is_masked = |entry: &serde_json::Value, text: &str| secrets(entry).hide(text) != text;
    let value = "debian-bookworm";
    for (name, secret) in [
        ("GITHUB_TOKEN", true),
        ("githubToken", true),
        ("GITHUB_PAT", true),
        ("APIKEY", true),
        ("apiKey", true),
        ("X-Api-Key", true),
        ("OPENAI_API_KEY", true),
        ("AWS_SECRET_ACCESS_KEY", true),
        ("PRIVATE_KEY_PEM", true),
        ("AUTHTOKEN", true),
        ("DB_PASSWORD", true),
        ("db.passwd", true),
        ("PGPASSWORD", true),
        ("CLIENT_SECRET_1", true),
        ("Authorization", true),
        ("HTTP_AUTHORIZATION", true),
        ("SESSION_COOKIE", true),
        ("LICENSE", true),
        ("DBPASS", true),
        ("MYSQL_CREDS", true),
        ("API_TOKENS", true),
        ("PASSCODE", true),
        ("SSHKEY", true),
        ("MAX_TOKENS", false),
        ("DOCKER_IMAGES", false),
        ("WEB_ALLOW", false),
        ("WEB_ALLOW_PRIVATE", false),
        ("KEYBOARD", false),
        ("MONKEY", false),
        ("KEYCLOAK_REALM", false),
        ("AUTHOR", false),
        ("PATH_PREFIX", false),
        ("TOKENIZER", false),
        ("TOKEN_URL", false),
        ("SSH_AUTH_SOCK", false),
        ("SECRET_NAME", false),
        ("API_KEY_FILE", false),
    ] {
        let stdio = serde_json::json!({"command": "x", "env": {name: value}, "gavel": {"secrets": ["LICENSE"]}});
        assert_eq!(is_masked(&stdio, value), secret, "{name}");
        let args = [format!("--{name}"), value.to_owned()];
        let flag = serde_json::json!({"command": "x", "args": args, "gavel": {"secrets": ["LICENSE"]}});
        assert_eq!(is_masked(&flag, value), secret, "--{name}");
        let pair = serde_json::json!({"command": "x", "args": [format!("--{name}={value}")]});
        assert_eq!(is_masked(&pair, value), secret && name != "LICENSE", "--{name}=");
        let query = serde_json::json!({"url": format!("https://host.example/mcp?{name}={value}")});
        assert_eq!(is_masked(&query, value), secret && name != "LICENSE", "?{name}=");
        if !name.contains('.') {
            let header = serde_json::json!({"url": "https://host.example/mcp", "headers": {name: value}});
            // The case of a header's name is lost.
            let is_split = name.contains(['_', '-']) || name.to_lowercase() == name || name.to_uppercase() == name;
            assert!(
                !is_split || is_masked(&header, value) == (secret && name != "LICENSE"),
                "{name}:"
            );
        }
    }
    let random = "Zx8mQ2vT5nR7kL1pW4sD9fG3hJ6bN0cY";
    let (github, jwt) = (format!("ghp_{random}"), format!("eyJhbGciOiJIUzI1NiJ9.e30.{random}"));
    for (text, secret) in [
        (
            "postgres://gavel:p%40ss-word@db/x".to_owned(),
            vec!["p%40ss-word", "p@ss-word"],
        ),
        ("https://x-token-x@github.com/acme".to_owned(), vec!["x-token-x"]),
        (
            "host=db user=gavel password='pass-word' dbname=x".to_owned(),
            vec!["pass-word"],
        ),
        (format!("one,{github};two"), vec![github.as_str()]),
        (jwt.clone(), vec![jwt.as_str()]),
        ("sk-proj-0123456789abcdef".to_owned(), vec!["sk-proj-0123456789abcdef"]),
        ("xoxb-0123456789-abcdef".to_owned(), vec!["xoxb-0123456789-abcdef"]),
        ("AIzaSyA0123456789".to_owned(), vec!["AIzaSyA0123456789"]),
        ("AQ.Ab8RN6-0123456789".to_owned(), vec!["AQ.Ab8RN6-0123456789"]),
        (
            "-----BEGIN PRIVATE KEY-----\nMIIBVwIBADAN\n".to_owned(),
            vec!["MIIBVwIBADAN"],
        ),
        (
            r#"{"key": "-----BEGIN PRIVATE KEY-----\nMIIBVwIBADAN\nAAAABBBB\n"}"#.to_owned(),
            vec!["MIIBVwIBADAN", "AAAABBBB"],
        ),
        ("postgres://gavel:Sup3r@Secret@db/x".to_owned(), vec!["Sup3r@Secret"]),
    ] {
        let entry = serde_json::json!({"command": "x", "env": {"OTHER": text}, "args": [text]});
        for secret in secret {
            assert!(is_masked(&entry, secret), "{secret}");
        }
        for common in ["gavel", "github.com", "postgres", "dbname"] {
            assert!(!is_masked(&entry, common), "{common} of {text}");
        }
    }
    let flags =
        serde_json::json!({"command": "x", "args": ["--password", "hunter,2-abcdef", "--api-key=ab&cdefghijk"]});
    assert_eq!(secrets(&flags).hide("hunter,2-abcdef ab&cdefghijk"), "*** ***");
    let images =
        serde_json::json!({"command": "x", "env": {"A": "sk-sk.facebook.com", "B": "acme/sk-learn-notebook-env"}});
    let names = "sk-sk.facebook.com acme/sk-learn-notebook-env";
    assert_eq!(secrets(&images).hide(names), names);
    let permitted = "docker.io/library/debian@sha256:3f1c9ab53f1c9ab53f1c9ab53f1c9ab53f1c9ab53f1c9ab53f1c9ab53f1c9ab5";
    let entry = serde_json::json!({"command": "x", "env": {"DOCKER_IMAGES": permitted}});
    let said = format!("Permitted are: {permitted}");
    assert_eq!(secrets(&entry).hide(&said), said);
}

/// The path of a file is no secret, and what it holds is.
#[test]
fn the_contents_of_a_file_that_a_variable_names_are_masked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key.pem");
    std::fs::write(&path, "first-line-of-it\nsecond-line-of-it\n").unwrap();
    for entry in [
        serde_json::json!({"command": "x", "env": {"APP_KEY_FILE": path}}),
        serde_json::json!({"command": "x", "env": {"GOOGLE_APPLICATION_CREDENTIALS": path}}),
        serde_json::json!({"command": "x", "cwd": directory.path(), "env": {"whatever_file": "key.pem"}}),
    ] {
        let said = format!("cannot use {}: second-line-of-it", path.display());
        let hidden = secrets(&entry).hide(&said).into_owned();
        assert_eq!(hidden, format!("cannot use {}: ***", path.display()));
    }
    std::fs::write(&path, "postgres://gavel:hunter22@db/x\n").unwrap();
    let entry = serde_json::json!({"command": "x", "env": {"DATABASE_URL_FILE": path}});
    assert_eq!(secrets(&entry).hide("no user hunter22"), "no user ***");
}
