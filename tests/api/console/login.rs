//! Login, session and logout.

use std::time::Duration;

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::json;
use sqlx::{Connection, PgConnection, SqliteConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::rig::{ALL, Browser, Office, approval, asks, key, keys, mail, offices};
use crate::harness::{App, Setup, spawn_app, until};

const SECRET: &str = "a-secret-of-the-issuer-that-is-long-enough";
const LOGIN: &str = "/console/login?next=%2Fconsole%2Fapprovals";

/// A token of this user that expires in this many seconds.
pub(super) fn token(user: &str, seconds: i64, roles: &[&str]) -> String {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let over = now.strict_add_signed(seconds);
    let claims = json!({"iss": "https://issuer.example", "aud": "gavel", "sub": user, "exp": over, "roles": roles});
    encode(
        &Header::default(),
        &claims,
        &EncodingKey::from_secret(SECRET.as_bytes()),
    )
    .unwrap()
}

pub(super) fn with_tokens(setup: Setup) -> Setup {
    setup
        .env("GAVEL_AUTH_MODE", "jwt")
        .env("GAVEL_AUTH_JWT_ISSUER", "https://issuer.example")
        .env("GAVEL_AUTH_JWT_AUDIENCE", "gavel")
        .env("GAVEL_AUTH_JWT_SECRET", SECRET)
}

fn open(app: &App) -> Setup {
    Setup::stdio_sqlite().env("DATABASE_URL", app.database_url.clone())
}

/// Without a login there is no page. A login sets a cookie that scripts, other sites and other paths do not get. After
/// the logout it no longer counts.
#[tokio::test]
async fn a_key_is_exchanged_for_a_cookie_that_counts_until_the_logout() {
    for (_office, app) in offices(vec![]).await {
        let browser = Browser::at(&app);
        browser.get("/console").await.leads_to("/console/approvals");
        browser.get("/console/approvals").await.leads_to(LOGIN);
        for path in ["/console/grants", "/console/threads/x", "/console/approvals/x?a=b"] {
            let page = browser.get(path).await;
            assert!(
                page.location().starts_with("/console/login?next=%2Fconsole%2F"),
                "{path}"
            );
        }
        let post = browser
            .post("/console/approvals/x", &[("decision", "approve_once")])
            .await;
        post.leads_to(&format!("{LOGIN}&lost=1"));

        let landed = browser.log_in(&key("desk"), "ann", "/console/grants").await;
        landed.leads_to("/console/grants");
        let set = landed.headers["set-cookie"].to_str().unwrap();
        let (pair, flags) = set.split_once("; ").unwrap();
        assert_eq!(flags, "Path=/console; Max-Age=28800; HttpOnly; SameSite=Strict");
        let value = pair.strip_prefix("gavel_session=").unwrap();
        assert_eq!(value.len(), 64, "256 bits in hex");
        let page = browser.get("/console/approvals").await.is(200);
        assert!(
            page.contains(">ann<") && page.contains("No action waits for approval."),
            "{page}"
        );
        assert!(
            !page.contains(value) && !page.contains(&key("desk")),
            "no secret is on a page"
        );

        let held = browser.moved_to(&app);
        let form = browser.get("/console/approvals").await.form_token();
        browser.post("/console/logout", &[("form_token", "x")]).await.is(403);
        browser.get("/console/approvals").await.is(200);
        let gone = browser.post("/console/logout", &[("form_token", &form)]).await;
        gone.leads_to("/console/login");
        assert!(gone.headers["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
        held.get("/console/approvals").await.leads_to(LOGIN);
    }
}

/// Cookies are not separated by port, so those of other services on this host arrive too, with any bytes. They do not
/// block a login.
#[tokio::test]
async fn a_neighbors_cookie_of_any_bytes_does_not_block_a_login() {
    let utf_8 = "x=\u{fc}".as_bytes();
    for neighbour in [utf_8, b"x=\xfc", b"\xfc=\xff\x80; y", b"gavel_session\xfc=1"] {
        for (office, app) in offices(vec![("gmail_send", mail())]).await {
            let run = app.says("ann").await;
            let browser = Browser::at(&app).beside(neighbour);
            // This form's token is bound to a cookie, too.
            let landed = browser.log_in(&key("desk"), "ann", "").await;
            landed.leads_to("/console/approvals");
            let page = browser.get("/console/approvals").await.is(200);
            assert!(page.contains(">ann<") && page.contains("I am late"), "{page}");
            let answered = browser.answers(&approval(&run, 0), "approve_once", "").await;
            assert_eq!(answered.status, 303, "{neighbour:?}: {}", answered.text);
            assert_eq!(office.names(), ["gmail_send"], "{neighbour:?}");
        }
    }
}

/// The table of logins holds neither the token nor the key.
#[tokio::test]
async fn the_table_of_logins_does_not_allow_a_login() {
    let office = Office::start().await;
    let setup = office.setup(Setup::stdio_sqlite());
    let app = spawn_app(
        setup
            .env("GAVEL_AUTH_MODE", "api_key")
            .env("GAVEL_AUTH_KEYS", keys(&ALL)),
    )
    .await;
    let browser = Browser::of(&app, "desk", "ann").await;
    let token = browser.cookies.lock().unwrap()["gavel_session"].clone();
    let mut database = SqliteConnection::connect(&app.database_url).await.unwrap();
    let rows: Vec<(String, String, String)> = sqlx::query_as("SELECT id, credential, fingerprint FROM console_session")
        .fetch_all(&mut database)
        .await
        .unwrap();
    let [(id, credential, fingerprint)] = &rows[..] else {
        panic!("{rows:?}")
    };
    assert_eq!(credential, "desk");
    let text = format!("{id} {fingerprint}");
    let digest = keys(&["desk"]);
    let digest = digest.split('"').find(|word| word.len() == 64).unwrap();
    for secret in [token.as_str(), &key("desk"), digest] {
        assert!(!text.contains(secret), "{text}");
    }
}

/// Every page has its security headers: no script, no frame, no cache, no referrer, forms to gavel only.
#[tokio::test]
async fn every_page_is_sent_with_its_headers() {
    for (_office, app) in offices(vec![]).await {
        let browser = Browser::of(&app, "desk", "ann").await;
        let stranger = Browser::at(&app);
        for page in [
            browser.get("/console").await,
            browser.get("/console/approvals").await,
            browser.get("/console/grants").await,
            browser
                .get("/console/approvals/019300aa-0000-7000-8000-000000000000")
                .await,
            browser.get("/console/threads/nonsense").await,
            browser.post("/console/approvals/x", &[]).await,
            stranger.get("/console/login").await,
            stranger.get("/console/approvals").await,
        ] {
            let header = |name: &str| page.headers.get(name).map_or("", |value| value.to_str().unwrap());
            let policy = header("content-security-policy");
            assert_eq!(
                policy,
                "default-src 'none'; style-src 'self'; img-src 'self'; frame-src 'self'; form-action 'self'; \
                 frame-ancestors 'none'; base-uri 'none'"
            );
            for (name, value) in [
                ("x-content-type-options", "nosniff"),
                ("x-frame-options", "DENY"),
                ("referrer-policy", "no-referrer"),
                ("cache-control", "no-store"),
                ("cross-origin-opener-policy", "same-origin"),
                ("content-type", "text/html; charset=utf-8"),
            ] {
                assert_eq!(header(name), value, "{name}: {}", page.text);
            }
            assert!(
                !page.text.contains("<script") && !page.text.contains("style=\""),
                "{}",
                page.text
            );
        }
        let page = browser.get("/console/approvals").await.text;
        let sheet = page
            .split_once("href=\"/console/style.css")
            .unwrap()
            .1
            .split('"')
            .next()
            .unwrap();
        let style = stranger.get(&format!("/console/style.css{sheet}")).await;
        assert!(style.headers["cache-control"].to_str().unwrap().contains("immutable"));
        let tag = style.headers["etag"].to_str().unwrap().to_owned();
        let again = stranger
            .get_with("/console/style.css", &[("if-none-match", &tag)])
            .await;
        assert_eq!(again.status, 304);
    }
}

/// Every replica accepts a login. A key that is removed from the configuration or replaced ends its logins, and roles
/// are the current ones.
#[tokio::test]
async fn a_login_is_valid_on_every_replica_while_its_key_is() {
    for (office, app) in offices(vec![("gmail_send", mail())]).await {
        let run = app.says("ann").await;
        let boss = Browser::of(&app, "chief", "").await;
        let desk = Browser::of(&app, "desk", "ann").await;
        let replica = |keys: String| {
            let setup = office.setup(open(&app)).script(asks(vec![]));
            spawn_app(setup.env("GAVEL_AUTH_MODE", "api_key").env("GAVEL_AUTH_KEYS", keys))
        };
        let same = replica(keys(&ALL)).await;
        let page = boss.moved_to(&same).get("/console/approvals").await.is(200);
        assert!(page.contains("I am late"), "{page}");

        let without = replica(keys(&["web", "chief"])).await;
        desk.moved_to(&without).get("/console/approvals").await.leads_to(LOGIN);
        boss.moved_to(&without).get("/console/approvals").await.is(200);

        let replaced = replica(
            keys(&ALL)
                .replace("\"desk\"", "\"moved\"")
                .replace("\"web\"", "\"desk\""),
        )
        .await;
        let page = desk.moved_to(&replaced).get("/console/approvals").await;
        page.leads_to(LOGIN);

        let demoted = replica(keys(&ALL).replace("[\"approver\"]", "[]")).await;
        boss.moved_to(&demoted).get("/console/approvals").await.is(403);
        let path = format!("/console/approvals/{}", approval(&run, 0));
        boss.moved_to(&demoted).get(&path).await.is(403);
    }
}

/// A login ends after its maximum age or after inactivity, and never lasts longer than the token it was created from.
#[tokio::test]
async fn a_login_expires() {
    let over = async |setup: Setup, credential: &str, user: &str, keeps_busy: bool| {
        let office = Office::start().await;
        let app = spawn_app(office.setup(setup)).await;
        let browser = Browser::at(&app);
        browser
            .log_in(credential, user, "")
            .await
            .leads_to("/console/approvals");
        browser.get("/console/approvals").await.is(200);
        if !keeps_busy {
            tokio::time::sleep(Duration::from_millis(7300)).await;
            browser.get("/console/approvals").await.leads_to(LOGIN);
        }
        until("the login to expire", || async {
            browser.get("/console/approvals").await.status == 303
        })
        .await;
    };
    let keyed = |setup: Setup| {
        setup
            .env("GAVEL_AUTH_MODE", "api_key")
            .env("GAVEL_AUTH_KEYS", keys(&ALL))
    };
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        let lasts = keyed(setup.clone()).env("GAVEL_CONSOLE_SESSION_HOURS", "0.002");
        over(lasts, &key("desk"), "ann", true).await;
        let rests = keyed(setup.clone()).env("GAVEL_CONSOLE_IDLE_HOURS", "0.002");
        over(rests, &key("desk"), "ann", false).await;
        over(with_tokens(setup), &token("ann", 8, &[]), "", true).await;
    }
}

/// Expired logins do not accumulate: the store's maintenance deletes them.
#[tokio::test]
async fn expired_logins_are_deleted() {
    for (_office, app) in offices(vec![]).await {
        Browser::of(&app, "desk", "ann").await;
        run(&app, "UPDATE console_session SET expires_at = 1").await;
        let live = Browser::of(&app, "desk", "bob").await;
        let _replica = spawn_app(
            open(&app)
                .env("GAVEL_AUTH_MODE", "api_key")
                .env("GAVEL_AUTH_KEYS", keys(&ALL)),
        )
        .await;
        until("it to be deleted", || async { logins(&app).await == ["bob"] }).await;
        live.get("/console/approvals").await.is(200);
    }
}

pub(crate) async fn run(app: &App, sql: &'static str) {
    if app.database_url.starts_with("postgres") {
        let mut database = PgConnection::connect(&app.database_url).await.unwrap();
        sqlx::query(sql).execute(&mut database).await.unwrap();
    } else {
        let mut database = SqliteConnection::connect(&app.database_url).await.unwrap();
        sqlx::query(sql).execute(&mut database).await.unwrap();
    }
}

/// The users of all stored logins.
async fn logins(app: &App) -> Vec<String> {
    const ALL: &str = "SELECT user_id FROM console_session ORDER BY user_id";
    if app.database_url.starts_with("postgres") {
        let mut database = PgConnection::connect(&app.database_url).await.unwrap();
        sqlx::query_scalar(ALL).fetch_all(&mut database).await.unwrap()
    } else {
        let mut database = SqliteConnection::connect(&app.database_url).await.unwrap();
        sqlx::query_scalar(ALL).fetch_all(&mut database).await.unwrap()
    }
}

/// With a token the user is that of the token, and no other can be named.
#[tokio::test]
async fn a_token_is_exchanged_for_a_login_of_its_user() {
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        let office = Office::start().await;
        let app = spawn_app(with_tokens(office.setup(setup))).await;
        let browser = Browser::at(&app);
        let page = browser.get("/console/login").await.is(200);
        assert!(
            page.contains("Token (JWT)") && !page.contains("name=\"user\""),
            "{page}"
        );
        let refused = browser.log_in(&token("ann", 600, &[]), "bob", "").await.is(403);
        assert!(refused.contains("only for themselves"), "{refused}");
        browser
            .log_in(&token("ann", 600, &[]), "", "")
            .await
            .leads_to("/console/approvals");
        assert!(browser.get("/console/approvals").await.is(200).contains(">ann<"));
        let boss = Browser::at(&app);
        boss.log_in(&token("boss", 600, &["approver"]), "", "")
            .await
            .leads_to("/console/approvals");
        assert!(boss.get("/console/approvals").await.is(200).contains("· approver"));
        for other in [token("ann", 600, &[]) + "x", key("desk"), String::new()] {
            let page = Browser::at(&app).log_in(&other, "", "").await.is(403);
            assert!(page.contains("Login failed."), "{page}");
        }
    }
}

/// The reason of a failed login is not shown, attempts are limited, and no login redirects to another site.
#[tokio::test]
async fn invalid_keys_get_the_same_answer_and_are_rate_limited() {
    for (_office, app) in offices(vec![]).await {
        let browser = Browser::at(&app);
        let unnamed = browser.log_in(&key("desk"), "", "").await.is(403);
        assert!(unnamed.contains("Enter the name of the acting user"), "{unnamed}");
        for next in ["//evil.example", "https://evil.example/", "/\\evil.example", "/v1/chat"] {
            let other = Browser::at(&app);
            let landed = other.log_in(&key("desk"), "ann", next).await;
            landed.leads_to("/console/approvals");
        }
        for n in 0..10 {
            let page = browser.log_in("wrong", "ann", "").await.is(403);
            assert!(page.contains("Login failed.") && !page.contains("wrong"), "{n}: {page}");
        }
        let waits = browser.log_in("wrong", "ann", "").await;
        assert!(waits.headers.contains_key("retry-after"));
        waits.is(429);
        // Behind a proxy all users share that address: failed logins do not block valid ones.
        let landed = Browser::at(&app).log_in(&key("desk"), "ann", "").await;
        landed.leads_to("/console/approvals");
    }
}

/// RFC 9110 section 15.4.5: a 304 response has no body, which would be read as the start of the next response.
#[tokio::test]
async fn a_304_for_the_style_sheet_has_no_body() {
    let (_office, app) = offices(vec![]).await.swap_remove(0);
    let style = Browser::at(&app).get("/console/style.css").await;
    let tag = style.headers["etag"].to_str().unwrap().to_owned();
    let address = app.url.trim_start_matches("http://");
    let get = |more: &str| format!("GET /console/style.css HTTP/1.1\r\nHost: {address}\r\n{more}\r\n");
    let both = get(&format!("If-None-Match: {tag}\r\n")) + &get("Connection: close\r\n");
    let mut connection = TcpStream::connect(address).await.unwrap();
    connection.write_all(both.as_bytes()).await.unwrap();
    let mut answers = String::new();
    connection.read_to_string(&mut answers).await.unwrap();
    let (first, second) = answers.split_once("\r\n\r\n").unwrap();
    assert!(first.starts_with("HTTP/1.1 304 "), "{answers}");
    assert!(second.starts_with("HTTP/1.1 200 "), "{second}");
    assert!(second.ends_with(&style.text), "{second}");
}

/// The API accepts a token for one more minute, because clocks differ. A login with such a token would have expired
/// before the next page.
#[tokio::test]
async fn a_token_that_has_just_expired_creates_no_login() {
    let office = Office::start().await;
    let app = spawn_app(with_tokens(office.setup(Setup::stdio_sqlite()))).await;
    let over = token("ann", -20, &[]);
    assert_eq!(app.get_as(&over, "/api/agent/approvals/pending").await.0, 200);
    let page = Browser::at(&app).log_in(&over, "", "").await;
    assert!(
        !page
            .headers
            .get_all("set-cookie")
            .iter()
            .any(|set| { set.to_str().unwrap().contains("session") })
    );
    assert!(page.is(403).contains("Login failed."));
}

/// The login form too is accepted only from gavel's own page.
#[tokio::test]
async fn a_login_that_another_site_sends_is_refused() {
    for (_office, app) in offices(vec![]).await {
        let browser = Browser::at(&app);
        let form = browser.get("/console/login").await.form_token();
        let credential = key("desk");
        let fields = [
            ("form_token", form.as_str()),
            ("credential", &credential),
            ("user", "ann"),
        ];
        for headers in [
            &[("sec-fetch-site", "cross-site")][..],
            &[("sec-fetch-site", "same-site")],
            &[("origin", "https://evil.example")],
            &[("origin", "null")],
        ] {
            let refused = browser.post_with("/console/login", headers, &fields).await;
            assert!(!refused.headers.contains_key("set-cookie"));
            refused.is(403);
        }
        browser.post("/console/login", &fields[1..]).await.is(403);
        let elsewhere = Browser::at(&app);
        elsewhere.post("/console/login", &fields).await.is(403);
        let own = [("sec-fetch-site", "same-origin"), ("origin", "null")];
        let landed = browser.post_with("/console/login", &own, &fields).await;
        landed.leads_to("/console/approvals");
        // A link from another site arrives without the cookie, so the page reloads itself.
        let again = elsewhere
            .get_with("/console/approvals", &[("sec-fetch-site", "cross-site")])
            .await;
        let page = again.is(200);
        assert!(
            page.contains("http-equiv=\"refresh\" content=\"0;url=/console/approvals\""),
            "{page}"
        );
    }
}

/// Behind a TLS proxy the cookie is secure, under a name that plain HTTP cannot set.
#[tokio::test]
async fn behind_a_proxy_the_cookie_is_secure() {
    for (_office, app) in offices(vec![]).await {
        for headers in [&[("x-forwarded-proto", "https")][..], &[("host", "gavel.example")]] {
            let browser = Browser::at(&app);
            let page = browser.get_with("/console/login", headers).await;
            let credential = key("desk");
            let form = page.form_token();
            let fields = [
                ("form_token", form.as_str()),
                ("credential", &credential),
                ("user", "ann"),
            ];
            let landed = browser.post_with("/console/login", headers, &fields).await;
            landed.leads_to("/console/approvals");
            let set = landed.headers["set-cookie"].to_str().unwrap();
            assert!(
                set.starts_with("__Secure-gavel_session=") && set.ends_with("; Secure"),
                "{set}"
            );
            browser.get_with("/console/approvals", headers).await.is(200);
            browser.get("/console/approvals").await.leads_to(LOGIN);
        }
    }
}

/// With `auth.mode = none` every user of this machine acts as `local`, without a login. A host name that is not this
/// machine's is refused, because another site could otherwise reach the console under its own name.
#[tokio::test]
async fn without_authentication_the_console_serves_only_this_machine() {
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        let office = Office::start().await;
        let app = spawn_app(office.setup(setup).script(asks(vec![("gmail_send", mail())]))).await;
        let run = crate::harness::Answer::of(
            app.request("POST", "/api/agent/run", &[("x-gavel-user", "ann")])
                .json(&json!({"prompt": "E-mail Ann."})),
        )
        .await
        .expect(200);
        let browser = Browser::at(&app);
        for host in ["evil.example", "localhost.evil.example", "169.254.169.254"] {
            browser.get_with("/console/approvals", &[("host", host)]).await.is(403);
        }
        let page = browser.get("/console/approvals").await.is(200);
        assert!(page.contains("I am late") && page.contains(">local<"), "{page}");
        let path = format!("/console/approvals/{}", approval(&run, 0));
        let bare = [("decision", "approve_once")];
        browser.post(&path, &bare).await.is(403);
        assert!(office.names().is_empty());
        browser.answers(&approval(&run, 0), "approve_once", "").await;
        assert_eq!(office.names(), ["gmail_send"]);
    }
}
