//! `gavel google connect` and the callback route.

use std::process::Stdio;
use std::time::Duration;

use gavel_mcp_google::connect::Connector;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

use super::{ALL_SCOPES, Answer, BOTH, Desk, Kind, account, mail, puppet, states};
use crate::docs::execute;
use crate::harness::{Setup, binary, client, spawn_app};
use crate::workspace::{EVENTS, READ, SEND, Trouble};

/// The page that the browser returns to: status and text.
async fn come_back(desk: &Desk, query: &str) -> (u16, String) {
    let request = desk.app.request("GET", &format!("/oauth/google/callback?{query}"), &[]);
    let answer = request.send().await.unwrap();
    let headers = answer.headers().clone();
    assert_eq!(headers["content-type"], "text/html; charset=utf-8");
    assert_eq!(headers["cache-control"], "no-store");
    assert_eq!(headers["referrer-policy"], "no-referrer");
    assert!(
        headers["content-security-policy"]
            .to_str()
            .unwrap()
            .contains("default-src 'none'")
    );
    (answer.status().as_u16(), answer.text().await.unwrap())
}

/// a connection that an operator started for a user is completed at the callback, once and for that user
/// only, whatever else the request carries. A state that belongs elsewhere, is made up, declined or expired is
/// rejected.
#[tokio::test]
async fn the_callback_completes_a_connection_once_and_only_for_its_user() {
    for kind in BOTH {
        let desk = Desk::with(kind, puppet(), |setup| setup).await;
        let connector = Connector::open(&desk.settings()).await.unwrap();
        let callback = connector.callback().unwrap().to_owned();
        let consent = |url: &str, user: &str| desk.google.consent(url, &account(user), &ALL_SCOPES.join(" "));
        let begun = connector.begin("ann", &callback).await.unwrap();
        let code = consent(&begun.url, "ann");
        for invalid in [
            String::new(),
            "error=access_denied".to_owned(),
            format!("code={code}"),
            format!("code={code}&state=made-up"),
            format!("code={code}&state={0}&state={0}", begun.state),
        ] {
            let (status, page) = come_back(&desk, &invalid).await;
            assert_eq!(status, 400, "{invalid}: {page}");
            assert!(!page.contains(&code));
        }
        // A user named in the request is ignored.
        let query = format!("code={code}&state={}&user=eve&scope=x", begun.state);
        let (status, page) = come_back(&desk, &query).await;
        assert_eq!(status, 200, "{page}");
        assert!(
            page.contains("ann@gmail.example is connected for the user ann"),
            "{page}"
        );
        let (status, page) = come_back(&desk, &query).await;
        assert_eq!(status, 400, "it is valid once: {page}");
        let users = async || {
            let all = connector.connected().await.unwrap();
            all.into_iter().map(|account| account.user).collect::<Vec<_>>()
        };
        assert_eq!(users().await, ["ann"]);
        let waiting = desk.mails("ann", mail()).await;
        let run = desk.resolve("ann", &waiting["actions"][0], "approve_once", None).await;
        assert_eq!(states(&run), ["completed"], "{run}");

        // A state that leads back to a command's own listener is not valid at the route.
        let elsewhere = connector.begin("bob", super::REDIRECT).await.unwrap();
        let code = consent(&elsewhere.url, "bob");
        let (status, _) = come_back(&desk, &format!("code={code}&state={}", elsewhere.state)).await;
        assert_eq!(status, 400);
        connector.finish("bob", &elsewhere.state, &code).await.unwrap();

        // Declined: it can no longer be completed, and the page does not show the text in the address.
        let declined = connector.begin("cyd", &callback).await.unwrap();
        let query = format!("error=<script>alert(1)</script>&state={}", declined.state);
        let (status, page) = come_back(&desk, &query).await;
        assert_eq!(status, 200);
        assert!(
            page.contains("consent was not given") && !page.contains("script"),
            "{page}"
        );
        let code = consent(&declined.url, "cyd");
        let (status, _) = come_back(&desk, &format!("code={code}&state={}", declined.state)).await;
        assert_eq!(status, 400);
        assert_eq!(users().await, ["ann", "bob"]);

        // A name that would be markup is shown as text.
        let odd = connector.begin("<b>dan</b>", &callback).await.unwrap();
        let code = consent(&odd.url, "dan");
        let (_, page) = come_back(&desk, &format!("code={code}&state={}", odd.state)).await;
        assert!(
            page.contains("&lt;b&gt;dan&lt;/b&gt;") && !page.contains("<b>"),
            "{page}"
        );
        connector.close().await;
        desk.app.stop().await;
    }
}

/// a value that cannot be a state (32 bytes in base64) is rejected like an unknown one, with what to do
/// next. It affects no connection and causes no database query, because any caller may send it.
#[tokio::test]
async fn an_impossible_state_is_rejected_without_a_database_query() {
    for kind in BOTH {
        let desk = Desk::with(kind, puppet(), |setup| setup).await;
        let connector = Connector::open(&desk.settings()).await.unwrap();
        let callback = connector.callback().unwrap().to_owned();
        let begun = connector.begin("ann", &callback).await.unwrap();
        let code = desk.google.consent(&begun.url, &account("ann"), &ALL_SCOPES.join(" "));
        let (state, short) = (&begun.state, &begun.state[1..]);
        let impossible = [
            String::new(),
            short.to_owned(),
            format!("{state}A"),
            state.repeat(40),
            format!("{short}="),
            format!("{short}%2B"),
            format!("{short}%20"),
            format!("{short}%00"),
            format!("{short}%27"),
            // One character is two bytes.
            format!("{}%C3%BC", &state[2..]),
            format!("{short}%FF"),
        ];
        let database = desk.variables["GOOGLE_DATABASE_URL"].clone();
        let is_waiting = async || connector.waits("ann", state).await.unwrap();
        for away in [false, true] {
            // The first possible state opens the database; then the database is removed.
            if away {
                let (status, _) = come_back(&desk, &format!("code={code}&state={}", "A".repeat(43))).await;
                assert_eq!(status, 400);
                execute(&database, "ALTER TABLE google_authorizations RENAME TO elsewhere").await;
                let (status, _) = come_back(&desk, &format!("code={code}&state={}", "A".repeat(43))).await;
                assert_eq!(status, 503, "a possible state is looked up");
            }
            for invalid in &impossible {
                let (status, page) = come_back(&desk, &format!("code={code}&state={invalid}")).await;
                assert_eq!(status, 400, "{invalid}: {page}");
                assert!(
                    page.contains("No account was connected") && page.contains("begin again"),
                    "{page}"
                );
                assert!(!page.contains(&code) && !page.contains(short), "{page}");
                // Declined: no connection is affected.
                let (status, page) = come_back(&desk, &format!("error=access_denied&state={invalid}")).await;
                assert_eq!(status, 200, "{invalid}: {page}");
            }
        }
        execute(&database, "ALTER TABLE elsewhere RENAME TO google_authorizations").await;
        assert!(is_waiting().await, "the started connection still waits");
        assert!(connector.connected().await.unwrap().is_empty());
        let (status, page) = come_back(&desk, &format!("code={code}&state={state}")).await;
        assert_eq!(status, 200, "and can be completed: {page}");
        connector.close().await;
        desk.app.stop().await;
    }
}

/// Runs `gavel google …` with the configuration of the service.
fn command(desk: &Desk, args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command
        .args(["google"])
        .args(args)
        .arg("--mcp-config")
        .arg(desk.app.directory.path().join("mcp.json"))
        .current_dir(desk.app.directory.path())
        .env("GAVEL_TRUST", desk.app.directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Starts to connect a user: the process, its further output, and the address to open.
async fn begin(desk: &Desk, args: &[&str]) -> (Child, BufReader<tokio::process::ChildStdout>, String) {
    let mut child = command(desk, args).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut url = String::new();
    out.read_line(&mut url).await.unwrap();
    (child, out, url.trim().to_owned())
}

fn parameter(url: &str, name: &str) -> String {
    let url = url::Url::parse(url).unwrap();
    let found = url.query_pairs().find(|(given, _)| given == name);
    found.unwrap().1.into_owned()
}

/// an account is connected on the machine of the command and by the callback of the service; then it is listed and
/// disconnected.
#[tokio::test]
async fn accounts_are_connected_listed_and_disconnected_from_the_command_line() {
    for kind in BOTH {
        let desk = Desk::with(kind, puppet(), |setup| setup).await;
        let consent = |url: &str, user: &str| desk.google.consent(url, &account(user), &ALL_SCOPES.join(" "));
        let browser = client();
        let run = async |args: &[&str]| {
            let output = command(&desk, args).output().await.unwrap();
            let text = |bytes| String::from_utf8(bytes).unwrap();
            (output.status.code(), text(output.stdout), text(output.stderr))
        };

        let (mut child, mut out, url) = begin(&desk, &["connect", "ann", "--here", "--no-browser"]).await;
        let (code, state) = (consent(&url, "ann"), parameter(&url, "state"));
        let home = parameter(&url, "redirect_uri");
        assert!(home.starts_with("http://127.0.0.1:"), "{home}");
        // Other connections to the listener are rejected and do not block the callback.
        let _silent = tokio::net::TcpStream::connect(home.trim_start_matches("http://").trim_end_matches('/'))
            .await
            .unwrap();
        let forged = browser
            .get(format!("{home}?state=made-up&code={code}"))
            .send()
            .await
            .unwrap();
        assert_eq!(forged.status(), 404);
        let back = browser
            .get(format!("{home}?state={state}&code={code}"))
            .send()
            .await
            .unwrap();
        assert!(
            back.text()
                .await
                .unwrap()
                .contains("ann@gmail.example is connected for the user ann")
        );
        let mut said = String::new();
        out.read_to_string(&mut said).await.unwrap();
        assert!(child.wait().await.unwrap().success());
        assert_eq!(said, "ann@gmail.example is connected for ann\n");

        let (mut child, mut out, url) = begin(&desk, &["connect", "bob"]).await;
        let (code, state) = (consent(&url, "bob"), parameter(&url, "state"));
        let (status, _) = come_back(&desk, &format!("code={code}&state={state}")).await;
        assert_eq!(status, 200);
        let mut said = String::new();
        out.read_to_string(&mut said).await.unwrap();
        assert!(child.wait().await.unwrap().success());
        assert_eq!(said, "bob@gmail.example is connected for bob\n");

        // A user who clears a checkbox sees what will not work, and so does the operator.
        let begun = begin(&desk, &["connect", "eve"]).await;
        let (child, mut out, url) = begun;
        let code = desk.google.consent(&url, &account("eve"), SEND);
        let query = format!("code={code}&state={}", parameter(&url, "state"));
        let (status, page) = come_back(&desk, &query).await;
        let lacks = "but without gmail.readonly, calendar.events";
        assert!(
            status == 200 && page.contains(lacks) && page.contains("every box"),
            "{page}"
        );
        let mut said = String::new();
        out.read_to_string(&mut said).await.unwrap();
        assert_eq!(said, format!("eve@gmail.example is connected for eve, {lacks}\n"));
        let said = child.wait_with_output().await.unwrap();
        assert!(String::from_utf8_lossy(&said.stderr).contains("every box"), "{said:?}");
        let (_, listed, note) = run(&["list"]).await;
        assert!(
            listed.contains("connected, without gmail.readonly, calendar.events"),
            "{listed}"
        );
        assert!(note.contains("every box"), "{note}");
        let listed = run(&["list", "--json"]).await.1;
        let mut listed = listed
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let eve = listed.find(|one| one["user"] == "eve").unwrap();
        assert_eq!(eve["missing"], serde_json::json!([READ, EVENTS]));
        assert_eq!(run(&["disconnect", "eve"]).await.0, Some(0));

        // If the user declines elsewhere, the command does not wait until its timeout.
        let (declined, _out, url) = begin(&desk, &["connect", "dan"]).await;
        come_back(
            &desk,
            &format!("error=access_denied&state={}", parameter(&url, "state")),
        )
        .await;

        let (mut child, _out, url) = begin(&desk, &["connect", "cyd", "--here"]).await;
        let (home, state) = (parameter(&url, "redirect_uri"), parameter(&url, "state"));
        browser
            .get(format!("{home}?state={state}&error=access_denied"))
            .send()
            .await
            .unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).await.unwrap();
        assert_eq!(child.wait().await.unwrap().code(), Some(1));
        assert!(said.contains("consent was not given"), "{said}");

        let declined = tokio::time::timeout(Duration::from_secs(60), declined.wait_with_output()).await;
        let declined = declined.expect("an end").unwrap();
        let said = String::from_utf8(declined.stderr).unwrap();
        assert!(
            declined.status.code() == Some(1) && said.contains("consent was declined"),
            "{said}"
        );

        let (status, listed, _) = run(&["list"]).await;
        assert_eq!(status, Some(0));
        let lines: Vec<_> = listed.lines().collect();
        assert_eq!(lines.len(), 3, "{listed}");
        assert!(
            lines[1].starts_with("ann") && lines[1].contains("ann@gmail.example"),
            "{listed}"
        );
        assert!(!listed.contains("canary"), "{listed}");
        assert_eq!(run(&["disconnect", "ann"]).await.0, Some(0));
        let (status, _, said) = run(&["disconnect", "ann"]).await;
        assert!(status == Some(1) && said.contains("has no connected account"), "{said}");
        assert_eq!(
            desk.google.refresh_tokens().len(),
            1,
            "the consent is revoked at Google"
        );
        desk.google.trouble("revoke", [Trouble::Refuse(503, "backendError")]);
        let (status, reported, said) = run(&["disconnect", "bob"]).await;
        assert!(
            status == Some(1) && reported.is_empty() && said.contains("https://myaccount.google.com/permissions"),
            "{reported}{said}"
        );
        assert!(!run(&["list"]).await.1.contains("bob"), "the account is removed here");
        let waiting = desk.mails("ann", mail()).await;
        let waits = waiting["status"] == "awaiting_confirmation";
        let run = match waits {
            true => desk.resolve("ann", &waiting["actions"][0], "approve_once", None).await,
            false => waiting,
        };
        assert_eq!(run["actions"][0]["errorCode"], "auth_required", "{run}");
        let why = run["actions"][0]["errorMessage"].as_str().unwrap();
        assert!(!why.contains('{') && why.contains("connect"), "as plain text: {why}");
        desk.app.stop().await;
    }
}

/// without a public address the callback route does not exist, whatever an anonymous caller sends there.
#[tokio::test]
async fn without_a_callback_there_is_no_callback_route() {
    let off = spawn_app(Setup::stdio_sqlite()).await;
    let no_callback = Desk::without(Kind::Sqlite, puppet(), &["GOOGLE_CALLBACK_URL"]).await;
    for app in [&off, &no_callback.app] {
        let request = app.request("GET", "/oauth/google/callback?state=made-up&code=x", &[]);
        let problem = Answer::of(request).await.expect(404);
        assert_eq!(problem["code"], "not_found", "{problem}");
    }
    off.stop().await;
    no_callback.app.stop().await;
}
