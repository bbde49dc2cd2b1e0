//! What `gavel doctor` says of the things that the bundled servers act on.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use super::harness::Place;

/// By the end of a path: the status, headers and body of the answer.
type Answers = Arc<dyn Fn(&str, &str) -> (u16, String, Value) + Send + Sync>;

/// Answers one request: `answers` gets its first line and its `Authorization`.
fn answer(stream: &mut (impl Read + Write), answers: &Answers) {
    let mut reader = BufReader::new(&mut *stream);
    let (mut first, mut authorization) = (String::new(), String::new());
    reader.read_line(&mut first).unwrap();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        if line.to_lowercase().starts_with("authorization:") {
            authorization = line;
        }
    }
    let path = first.split(' ').nth(1).unwrap_or_default();
    let (status, headers, body) = answers(path, authorization.trim());
    let body = body.to_string();
    let length = body.len();
    // The client may have gone away.
    let _ = write!(
        stream,
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{headers}content-length: {length}\r\nconnection: \
         close\r\n\r\n{body}"
    );
}

fn serve<S: Read + Write>(next: impl Fn() -> std::io::Result<S> + Send + 'static, answers: Answers) {
    std::thread::spawn(move || {
        while let Ok(mut stream) = next() {
            answer(&mut stream, &answers);
        }
    });
}

/// A GitHub with these answers; returns its address.
fn github(answers: Answers) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    serve(move || listener.accept().map(|(stream, _)| stream), answers);
    address
}

/// A container engine with these security options; returns its address.
fn engine(socket: &Path, security: &'static [&'static str]) -> String {
    let answers: Answers = Arc::new(move |path, _| {
        let component = json!({"Name": "Podman Engine", "Version": "4.3.1"});
        let body = match path.ends_with("/version") {
            true => json!({"Version": "4.3.1", "ApiVersion": "1.41", "Components": [component]}),
            false => json!({"SecurityOptions": security, "Containers": 0}),
        };
        (200, String::new(), body)
    });
    let listener = UnixListener::bind(socket).unwrap();
    serve(move || listener.accept().map(|(stream, _)| stream), answers);
    format!("unix://{}", socket.display())
}

fn quota(remaining: u64) -> Value {
    json!({"resources": {"core": {"limit": 5000, "remaining": remaining, "used": 0, "reset": 1_795_000_000}}, "rate": {}})
}

/// What doctor says with these variables, whatever it finds elsewhere. It never says `canary`, which is in each secret.
fn doctor(place: &Place, environment: &[(&str, &str)]) -> String {
    let ran = place.run_with(&["doctor", "--listen", "127.0.0.1:0"], environment);
    assert!(
        !ran.out.contains("canary") && !ran.err.contains("canary"),
        "{}{}",
        ran.out,
        ran.err
    );
    ran.out
}

/// The line that begins so, and the one after it, which may say what to do.
fn line(said: &str, start: &str) -> String {
    let mut lines = said.lines().skip_while(|line| !line.starts_with(start));
    let found = lines.next().unwrap_or_else(|| panic!("no line {start:?}:\n{said}"));
    format!("{found}\n{}", lines.next().unwrap_or_default())
}

/// The scopes of GitHub's token, when it expires, and the remaining quota.
#[test]
fn doctor_shows_what_the_github_token_allows_and_the_remaining_quota() {
    let place = Place::new();
    let scoped = |scopes: &'static str, remaining: u64| {
        github(Arc::new(move |path, authorization| {
            assert_eq!(
                (path, authorization),
                ("/rate_limit", "authorization: Bearer canary-token")
            );
            let expires = "github-authentication-token-expiration: 2026-12-24 10:00:00 UTC\r\n";
            (200, format!("x-oauth-scopes: {scopes}\r\n{expires}"), quota(remaining))
        }))
    };
    let said = |api: &str| doctor(&place, &[("GITHUB_TOKEN", "canary-token"), ("GITHUB_API_URL", api)]);

    let enough = said(&scoped("repo, read:org", 4991));
    assert_eq!(
        line(&enough, "✓ github: ").lines().next(),
        Some(
            "✓ github: a token with the scopes repo, read:org, expires 2026-12-24 10:00:00 UTC; 4991 of 5000 requests \
             remain until 2026-11-18T11:06:40Z"
        )
    );
    assert!(!enough.contains("! github: "), "{enough}");

    let few = said(&scoped("read:org", 7));
    assert!(
        few.contains("! github: it changes nothing without the scope repo"),
        "{few}"
    );
    assert!(few.contains("! github: the quota is nearly used up"), "{few}");

    // A fine-grained token has no scopes, and this GitHub limits nothing.
    let fine = said(&github(Arc::new(|_, _| {
        (404, String::new(), json!({"message": "Not Found"}))
    })));
    assert!(
        fine.contains("✓ github: a token with permissions of its own; no limit of requests"),
        "{fine}"
    );

    let refused = said(&github(Arc::new(|_, _| {
        (401, String::new(), json!({"message": "Bad credentials"}))
    })));
    let refused = line(&refused, "✗ github: GitHub does not accept");
    assert!(refused.contains("→ check GITHUB_TOKEN"), "{refused}");
}

/// An App has the permissions of its installation.
#[test]
fn doctor_shows_the_permissions_of_a_github_app() {
    let place = Place::new();
    std::fs::write(
        place.path().join("key.pem"),
        include_str!("../fixtures/gemini/service-account.test-key.pem"),
    )
    .unwrap();
    let app = |suspended: Value| {
        github(Arc::new(move |path, _| match path {
            "/app/installations/42" => (
                200,
                String::new(),
                json!({"account": {"login": "acme", "type": "Organization"}, "suspended_at": suspended,
                       "permissions": {"contents": "write", "issues": "read", "pull_requests": "write"}}),
            ),
            "/app/installations/42/access_tokens" => (
                201,
                String::new(),
                json!({"token": "ghs_canary", "expires_at": "2096-01-01T00:00:00Z"}),
            ),
            _ => (200, String::new(), quota(5000)),
        }))
    };
    let said = |api: &str| {
        let app = [
            ("GITHUB_APP_ID", "7"),
            ("GITHUB_APP_PRIVATE_KEY_FILE", "key.pem"),
            ("GITHUB_APP_INSTALLATION_ID", "42"),
            ("GITHUB_API_URL", api),
        ];
        doctor(&place, &app)
    };
    let active = said(&app(Value::Null));
    assert!(
        active.contains(
            "✓ github: an App in acme with contents write, issues read, pull_requests write; 5000 of 5000 requests"
        ),
        "{active}"
    );
    assert!(
        active.contains("! github: the App lacks issues write: add it"),
        "{active}"
    );
    let suspended = said(&app(json!("2026-01-01T00:00:00Z")));
    let suspended = line(&suspended, "✗ github: the App is suspended in acme");
    assert!(suspended.contains("→ unsuspend the App"), "{suspended}");
}

/// The container engine, with a warning if root in a container is root here.
#[test]
fn doctor_shows_the_container_engine_and_warns_of_a_rootful_one() {
    let place = Place::new();
    let said = |host: &str| doctor(&place, &[("DOCKER_HOST", host), ("DOCKER_IMAGES", "debian:*")]);

    let rootless = engine(
        &place.path().join("a.sock"),
        &["name=seccomp,profile=default", "name=rootless"],
    );
    let seen = said(&rootless);
    let good = "✓ container engine: Podman Engine 4.3.1 (API 1.41), rootless or with user namespaces";
    assert!(seen.contains(good), "{seen}");

    let rootful = engine(&place.path().join("b.sock"), &["name=seccomp,profile=default"]);
    let seen = line(&said(&rootful), "! container engine: ");
    assert!(
        seen.contains("4.3.1 (API 1.41), rootful without user namespaces") && seen.contains("use a rootless engine"),
        "{seen}"
    );

    let absent = format!("unix://{}", place.path().join("none.sock").display());
    let seen = line(&said(&absent), "✗ container engine: ");
    assert!(
        seen.contains("does not answer") && seen.contains("→ start the engine, or set DOCKER_HOST"),
        "{seen}"
    );
}

/// The level of the shell's sandbox.
#[test]
fn doctor_shows_the_level_of_the_sandbox() {
    let place = Place::new();
    let root = place.path().join("shell").display().to_string();
    let said = |level: &str| doctor(&place, &[("SHELL_SANDBOX", level), ("SHELL_ROOT", &root)]);
    let seen = said("host");
    assert!(
        seen.contains("! shell: commands run without a sandbox (SHELL_SANDBOX=host)"),
        "{seen}"
    );
    // What works depends on the machine; each level is either used or has its reason.
    let seen = said("auto");
    let found = match seen.contains("✓ shell: sandbox ") {
        true => line(&seen, "✓ shell: sandbox "),
        false => line(&seen, "✗ shell: no level of SHELL_SANDBOX works here: bwrap: "),
    };
    assert!(
        found.contains("memory") || found.contains("landlock: ") && found.contains("→ install bubblewrap"),
        "{found}"
    );
    let seen = line(&said("strict"), "✗ shell: SHELL_SANDBOX");
    assert!(seen.contains("→ correct the setting"), "{seen}");
}

/// What the web server may request, and what its search asks. Gavel's own key reaches it, wherever it was set.
#[test]
fn doctor_shows_the_search_of_the_web_server() {
    let place = Place::new();
    let seen = doctor(&place, &[("WEB_ALLOW", "*")]);
    assert!(
        seen.contains("! web: pages of every public host, but no search; set GEMINI_API_KEY"),
        "{seen}"
    );
    assert!(seen.contains("✓ MCP server web: connected"), "{seen}");

    std::fs::write(place.path().join("key"), "canary\n").unwrap();
    // No server listens on the discard port.
    let settings = "[gemini]\napi_key_file = \"key\"\nbase_url = \"http://127.0.0.1:9\"\n";
    std::fs::write(place.path().join("gavel.toml"), settings).unwrap();
    let seen = doctor(&place, &[("WEB_ALLOW", "docs.example")]);
    let good = "✓ web: pages of the hosts in WEB_ALLOW; google_web_search asks the Gemini API";
    assert!(
        seen.contains(good) && seen.contains("✓ MCP server web: connected"),
        "{seen}"
    );

    let seen = doctor(
        &place,
        &[("WEB_ALLOW", "*"), ("GOOGLE_CSE_KEY", "canary"), ("GOOGLE_CSE_ID", "x")],
    );
    assert!(seen.contains("google_web_search asks Custom Search"), "{seen}");
    let seen = line(&doctor(&place, &[("WEB_ALLOW", "https://x")]), "✗ web: WEB_ALLOW");
    assert!(seen.contains("→ correct the setting"), "{seen}");

    // A key for chat alone starts nothing.
    let seen = doctor(&place, &[]);
    assert!(
        seen.contains("! MCP server web: off: needs WEB_ALLOW") && !seen.contains(" web: pages"),
        "{seen}"
    );
}
