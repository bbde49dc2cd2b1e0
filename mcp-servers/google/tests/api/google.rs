//! A stand-in for Google: a real HTTP server with mailboxes and calendars. It issues tokens, checks requests against
//! Google's own API descriptions, and fails on demand.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use mail_parser::{Address, HeaderValue, Message, MessageParser};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use url::form_urlencoded;

use crate::discovery;

pub(crate) const CLIENT_ID: &str = "client-1.apps.googleusercontent.com";
pub(crate) const CLIENT_SECRET: &str = "canary-client-secret";
pub(crate) const SERVICE_ACCOUNT: &str = "gavel@project.iam.gserviceaccount.com";
/// The key pair of the service account.
pub(crate) const PUBLIC_KEY: &str = include_str!("../../../../tests/fixtures/gemini/service-account.test-key.pub.pem");
pub(crate) const SEND: &str = "https://www.googleapis.com/auth/gmail.send";
pub(crate) const READ: &str = "https://www.googleapis.com/auth/gmail.readonly";
pub(crate) const METADATA: &str = "https://www.googleapis.com/auth/gmail.metadata";
pub(crate) const EVENTS: &str = "https://www.googleapis.com/auth/calendar.events";

/// How one request fails.
#[derive(Debug, Clone)]
pub(crate) enum Trouble {
    /// No failure: a placeholder in the list.
    Fine,
    /// Refused before anything is done.
    Refuse(u16, &'static str),
    /// The same, with the seconds of `Retry-After`.
    RefuseFor(u16, &'static str, u64),
    /// Done, then the connection is cut.
    CutAfter,
    /// The connection is cut, and nothing is done.
    CutBefore,
    /// Done, then answered with an error.
    FaultAfter(u16),
    /// Done, and answered late.
    Late(Duration),
    /// Done, and answered by an intermediary with a status and a text.
    Says(u16, &'static str),
    /// Done, and never answered.
    Silence,
}

/// A received request.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) what: &'static str,
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) token: String,
    /// The account of its token.
    pub(crate) account: String,
}

impl Seen {
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(given, _)| given == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

/// An e-mail in a mailbox.
#[derive(Debug, Clone)]
pub(crate) struct Mail {
    pub(crate) account: String,
    pub(crate) id: String,
    pub(crate) thread_id: String,
    pub(crate) label: &'static str,
    pub(crate) internal_date: u64,
    /// The sender's own copy.
    pub(crate) raw: Vec<u8>,
    /// The recipients that it was delivered to.
    pub(crate) delivered_to: Vec<String>,
    /// The recipients' copy: without Bcc.
    pub(crate) delivered: Vec<u8>,
    pub(crate) message_id: String,
}

impl Mail {
    pub(crate) fn message(&self) -> Message<'_> {
        MessageParser::default().parse(&self.raw).expect("an e-mail")
    }
}

#[derive(Debug, Clone)]
struct Token {
    account: String,
    scopes: String,
}

#[derive(Debug, Clone)]
struct Code {
    account: String,
    scopes: String,
    challenge: String,
    redirect_uri: String,
}

#[derive(Default)]
struct State {
    codes: HashMap<String, Code>,
    refresh: HashMap<String, Token>,
    access: HashMap<String, Token>,
    mails: Vec<Mail>,
    events: HashMap<(String, String, String), Value>,
    invitations: Vec<(String, String)>,
    troubles: HashMap<&'static str, VecDeque<Trouble>>,
    seen: Vec<Seen>,
    invalid: Vec<String>,
    count: u64,
    keeps_message_ids: bool,
    search_lags: bool,
    expires_in: u64,
    assertions: Vec<Value>,
}

/// The stand-in; clones share its state.
#[derive(Clone)]
pub(crate) struct Google {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

type Reply = Response<Full<Bytes>>;

/// An answer that is replaced by cutting the connection.
struct Cut;

impl Google {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let google = Self {
            address: listener.local_addr().expect("an address"),
            state: Arc::new(Mutex::new(State {
                expires_in: 3600,
                ..State::default()
            })),
        };
        // Before the first request, which must not wait for it.
        tokio::task::spawn_blocking(discovery::apis)
            .await
            .expect("descriptions");
        let served = google.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let google = served.clone();
                let service = service_fn(move |request| {
                    let google = google.clone();
                    async move { google.answer(request).await.map_err(|Cut| std::io::Error::other("cut")) }
                });
                tokio::spawn(async move {
                    // A connection that is cut ends in an error, as intended.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        google
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Fails the test if a request did not match Google's descriptions.
    pub(crate) fn finish(&self) {
        let invalid = std::mem::take(&mut self.state().invalid);
        assert!(invalid.is_empty(), "{invalid:#?}");
    }

    /// The next requests of a kind (send, list, get, thread, insert, event, token, revoke) fail like this.
    pub(crate) fn trouble(&self, what: &'static str, troubles: impl IntoIterator<Item = Trouble>) {
        self.state().troubles.entry(what).or_default().extend(troubles);
    }

    /// Keeps Message-IDs as sent; by default they are replaced, as Gmail does.
    pub(crate) fn keep_message_ids(&self) {
        self.state().keeps_message_ids = true;
    }

    /// Searches find nothing yet.
    pub(crate) fn let_search_lag(&self) {
        self.state().search_lags = true;
    }

    pub(crate) fn tokens_expire_in(&self, seconds: u64) {
        self.state().expires_in = seconds;
    }

    /// Google forgets access tokens.
    pub(crate) fn forget_access_tokens(&self) {
        self.state().access.clear();
    }

    /// The user revokes the consent.
    pub(crate) fn take_back(&self, account: &str) {
        let mut state = self.state();
        state.refresh.retain(|_, token| token.account != account);
        state.access.retain(|_, token| token.account != account);
    }

    pub(crate) fn seen(&self, what: &str) -> Vec<Seen> {
        let state = self.state();
        state.seen.iter().filter(|seen| seen.what == what).cloned().collect()
    }

    /// The e-mails sent from an account.
    pub(crate) fn sent(&self, account: &str) -> Vec<Mail> {
        let state = self.state();
        let own = state
            .mails
            .iter()
            .filter(|mail| mail.account == account && mail.label == "SENT");
        own.cloned().collect()
    }

    /// The events of an account's calendars.
    pub(crate) fn events(&self, account: &str) -> Vec<Value> {
        let state = self.state();
        let own = state.events.iter().filter(|((owner, ..), _)| owner == account);
        own.map(|(_, event)| event.clone()).collect()
    }

    /// The recipients of invitations.
    pub(crate) fn invitations(&self) -> Vec<(String, String)> {
        self.state().invitations.clone()
    }

    /// The accepted claims of service accounts.
    pub(crate) fn assertions(&self) -> Vec<Value> {
        self.state().assertions.clone()
    }

    /// The valid refresh tokens.
    pub(crate) fn refresh_tokens(&self) -> Vec<String> {
        self.state().refresh.keys().cloned().collect()
    }

    /// All access tokens so far.
    pub(crate) fn access_tokens(&self) -> Vec<String> {
        self.state().access.keys().cloned().collect()
    }

    /// Puts an e-mail into a mailbox, and returns its id and its thread's.
    pub(crate) fn put_mail(&self, account: &str, raw: &str, label: &'static str, age: Duration) -> (String, String) {
        let mut state = self.state();
        let id = state.id("m");
        let mail = Mail {
            account: account.to_owned(),
            thread_id: format!("t{id}"),
            label,
            internal_date: now_millis() - age.as_millis() as u64,
            raw: raw.replace('\n', "\r\n").into_bytes(),
            delivered_to: Vec::new(),
            delivered: Vec::new(),
            message_id: String::new(),
            id,
        };
        let ids = (mail.id.clone(), mail.thread_id.clone());
        state.mails.push(mail);
        ids
    }

    /// What a user does in the browser: opens the page of an authorization and consents with an account. Returns the
    /// code.
    pub(crate) fn consent(&self, url: &str, account: &str, scopes: &str) -> String {
        let url = url::Url::parse(url).expect("a URL");
        let query: HashMap<_, _> = url.query_pairs().into_owned().collect();
        assert_eq!(query["client_id"], CLIENT_ID);
        assert_eq!(query["response_type"], "code");
        assert_eq!(query["code_challenge_method"], "S256");
        assert_eq!(query["access_type"], "offline");
        assert_eq!(query["prompt"], "consent");
        let mut state = self.state();
        let code = state.id("code-");
        let granted = Code {
            account: account.to_owned(),
            scopes: scopes.to_owned(),
            challenge: query["code_challenge"].clone(),
            redirect_uri: query["redirect_uri"].clone(),
        };
        state.codes.insert(code.clone(), granted);
        code
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Reply, Cut> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
        let path = parts.uri.path().to_owned();
        let query = form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes());
        let bearer = parts.headers.get("authorization").and_then(|value| value.to_str().ok());
        let token = bearer
            .and_then(|bearer| bearer.strip_prefix("Bearer "))
            .unwrap_or_default();
        let segments: Vec<_> = path.trim_start_matches('/').split('/').collect();
        let what = match (parts.method.as_str(), &segments[..]) {
            ("POST", ["token"]) => "token",
            ("POST", ["revoke"]) => "revoke",
            ("POST", ["gmail", "v1", "users", "me", "messages", "send"]) => "send",
            ("GET", ["gmail", "v1", "users", "me", "messages"]) => "list",
            ("GET", ["gmail", "v1", "users", "me", "messages", _]) => "get",
            ("GET", ["gmail", "v1", "users", "me", "threads", _]) => "thread",
            ("POST", ["calendar", "v3", "calendars", _, "events"]) => "insert",
            ("GET", ["calendar", "v3", "calendars", _, "events", _]) => "event",
            other => {
                self.state().invalid.push(format!("an unknown request: {other:?}"));
                return Ok(refuse(404, "notFound"));
            }
        };
        let mut seen = Seen {
            what,
            query: query.into_owned().collect(),
            body: body.to_vec(),
            token: token.to_owned(),
            account: String::new(),
            path: path.clone(),
        };
        let trouble = {
            let mut state = self.state();
            let owner = state.access.get(token).cloned();
            seen.account = owner.map(|owner| owner.account).unwrap_or_default();
            state.seen.push(seen.clone());
            let row = state.troubles.get_mut(what);
            row.and_then(VecDeque::pop_front).unwrap_or(Trouble::Fine)
        };
        match trouble {
            Trouble::Refuse(status, reason) => return Ok(refuse(status, reason)),
            Trouble::RefuseFor(status, reason, seconds) => {
                let mut reply = refuse(status, reason);
                reply.headers_mut().insert("retry-after", seconds.into());
                return Ok(reply);
            }
            Trouble::CutBefore => return Err(Cut),
            _ => {}
        }
        let reply = self.state().carry_out(parts.method.as_str(), &segments, &seen);
        match trouble {
            Trouble::CutAfter => Err(Cut),
            Trouble::FaultAfter(status) => Ok(refuse(status, "backendError")),
            Trouble::Late(late) => {
                tokio::time::sleep(late).await;
                Ok(reply)
            }
            Trouble::Says(status, text) => {
                let mut reply = Response::new(Full::from(text));
                *reply.status_mut() = StatusCode::from_u16(status).expect("a status");
                Ok(reply)
            }
            Trouble::Silence => std::future::pending().await,
            _ => Ok(reply),
        }
    }
}

impl State {
    fn id(&mut self, prefix: &str) -> String {
        self.count += 1;
        format!("{prefix}{:06}", self.count)
    }

    fn carry_out(&mut self, verb: &str, segments: &[&str], seen: &Seen) -> Reply {
        match seen.what {
            "token" => return self.token(&seen.body),
            "revoke" => {
                let form: HashMap<_, _> = form_urlencoded::parse(&seen.body).into_owned().collect();
                return match self.refresh.remove(&form["token"]) {
                    Some(_) => json_reply(200, &json!({})),
                    None => json_reply(400, &json!({ "error": "invalid_token" })),
                };
            }
            _ => {}
        }
        let Some(owner) = self.access.get(&seen.token).cloned() else {
            return refuse(401, "authError");
        };
        let api = discovery::apis().map(|[gmail, calendar]| if segments[0] == "gmail" { gmail } else { calendar });
        let method = api.and_then(|api| api.method(verb, &seen.path).map(|method| (api, method)));
        if let Some((api, method)) = &method {
            let invalid = api.check_request(method, &seen.query, &seen.body);
            if !invalid.is_empty() {
                self.invalid.extend(invalid);
                return refuse(400, "invalid");
            }
            if !api.allows(method, &owner.scopes) {
                return refuse(403, "insufficientPermissions");
            }
        } else if api.is_some() {
            self.invalid
                .push(format!("no method of Google's: {verb} {}", seen.path));
        }
        let reply = match seen.what {
            "send" => self.send(&owner.account, seen),
            "list" => self.list(&owner, seen),
            "get" => self.get(&owner.account, segments[5], seen),
            "thread" => self.thread(&owner.account, segments[5], seen),
            "insert" => self.insert(&owner.account, segments[3], seen),
            _ => self.event(&owner.account, segments[3], segments[5]),
        };
        let (status, body) = reply;
        let text = body.to_string();
        if let (Some((api, method)), 200) = (&method, status) {
            self.invalid.extend(api.check_response(method, text.as_bytes()));
        }
        json_reply(status, &body)
    }

    fn token(&mut self, body: &[u8]) -> Reply {
        let form: HashMap<String, String> = form_urlencoded::parse(body).into_owned().collect();
        let refuse = |error: &str| json_reply(400, &json!({ "error": error, "error_description": "canary-words" }));
        let is_client = form.get("client_id").is_some_and(|id| id == CLIENT_ID)
            && form.get("client_secret").is_some_and(|secret| secret == CLIENT_SECRET);
        match form["grant_type"].as_str() {
            "authorization_code" if is_client => {
                // A code is valid for one exchange.
                let Some(code) = self.codes.remove(&form["code"]) else {
                    return refuse("invalid_grant");
                };
                let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&form["code_verifier"]));
                if challenge != code.challenge || form["redirect_uri"] != code.redirect_uri {
                    return refuse("invalid_grant");
                }
                let token = Token {
                    account: code.account,
                    scopes: code.scopes,
                };
                let refresh = self.id("1//canary-refresh-");
                self.refresh.insert(refresh.clone(), token.clone());
                let claims = json!({ "email": token.account }).to_string();
                let mut body = self.grant(token);
                body["refresh_token"] = refresh.into();
                body["id_token"] = format!("h.{}.s", URL_SAFE_NO_PAD.encode(claims)).into();
                json_reply(200, &body)
            }
            "refresh_token" if is_client => match self.refresh.get(&form["refresh_token"]).cloned() {
                Some(token) => json_reply(200, &self.grant(token)),
                None => refuse("invalid_grant"),
            },
            "urn:ietf:params:oauth:grant-type:jwt-bearer" => match self.delegated(&form["assertion"]) {
                Ok(token) => json_reply(200, &self.grant(token)),
                Err(error) => refuse(error),
            },
            _ => json_reply(401, &json!({ "error": "invalid_client" })),
        }
    }

    fn grant(&mut self, token: Token) -> Value {
        let access = self.id("ya29.canary-access-");
        let body = json!({
            "access_token": access, "expires_in": self.expires_in, "scope": token.scopes, "token_type": "Bearer"
        });
        self.access.insert(access, token);
        body
    }

    fn delegated(&mut self, assertion: &str) -> Result<Token, &'static str> {
        let mut validation = Validation::new(Algorithm::RS256);
        validation.validate_aud = false;
        let key = DecodingKey::from_rsa_pem(PUBLIC_KEY.as_bytes()).expect("a key");
        let claims = jsonwebtoken::decode::<Value>(assertion, &key, &validation)
            .map_err(|_| "invalid_grant")?
            .claims;
        let account = claims["sub"].as_str().unwrap_or_default().to_owned();
        if claims["iss"] != SERVICE_ACCOUNT || !account.ends_with("@example.com") {
            return Err("invalid_grant");
        }
        let scopes = claims["scope"].as_str().unwrap_or_default().to_owned();
        if scopes.split(' ').any(|scope| scope.ends_with("/calendar")) {
            return Err("unauthorized_client");
        }
        self.assertions.push(claims);
        Ok(Token { account, scopes })
    }

    fn send(&mut self, account: &str, seen: &Seen) -> (u16, Value) {
        let body = seen.json();
        let Ok(raw) = URL_SAFE_NO_PAD.decode(body["raw"].as_str().unwrap_or_default()) else {
            return refusal(400, "invalidArgument");
        };
        let Some(message) = MessageParser::default().parse(&raw) else {
            return refusal(400, "invalidArgument");
        };
        let addresses = |list: Option<&Address<'_>>| -> Vec<String> {
            let all = list.into_iter().flat_map(|list| list.iter());
            all.filter_map(|address| address.address().map(str::to_owned)).collect()
        };
        let all = [message.to(), message.cc(), message.bcc()];
        let delivered_to: Vec<_> = all.into_iter().flat_map(addresses).collect();
        if delivered_to.is_empty() {
            return refusal(400, "invalidArgument");
        }
        if message.header_values("To").count() != 1 || raw.contains(&0) {
            self.invalid
                .push("an e-mail with two To headers, or with a NUL".to_owned());
        }
        let lone = |pair: &[u8]| pair[1] == b'\n' && pair[0] != b'\r';
        if raw.windows(2).any(lone) || raw.split(|byte| *byte == b'\n').any(|line| line.len() > 999) {
            self.invalid
                .push("an e-mail with a bare line feed, or with a line that is too long".to_owned());
        }
        let thread_id = match body["threadId"].as_str() {
            None => None,
            Some(id)
                if self
                    .mails
                    .iter()
                    .any(|mail| mail.account == account && mail.thread_id == id) =>
            {
                Some(id.to_owned())
            }
            Some(_) => return refusal(404, "notFound"),
        };
        // "The `Subject` headers must match"; otherwise Google silently begins a new thread.
        let about = |subject: Option<&str>| {
            let subject = subject.unwrap_or_default().trim().to_lowercase();
            subject.trim_start_matches("re: ").to_owned()
        };
        let first = self
            .mails
            .iter()
            .find(|mail| Some(&mail.thread_id) == thread_id.as_ref());
        let goes_with = first.is_some_and(|mail| about(mail.message().subject()) == about(message.subject()));
        let thread_id = thread_id.filter(|_| goes_with);
        let id = self.id("m");
        let own_id = format!("google{id}@mail.gmail.com");
        let given_id = message.message_id().unwrap_or_default().to_owned();
        let text = String::from_utf8(raw.clone()).expect("ASCII");
        let (kept, message_id) = if self.keeps_message_ids {
            (text.clone(), given_id)
        } else {
            (
                without(&text, "Message-ID").replacen("Subject:", &format!("Message-ID: <{own_id}>\r\nSubject:"), 1),
                own_id,
            )
        };
        self.mails.push(Mail {
            account: account.to_owned(),
            thread_id: thread_id.unwrap_or_else(|| format!("t{id}")),
            label: "SENT",
            internal_date: now_millis(),
            delivered: without(&kept, "Bcc").into_bytes(),
            raw: kept.into_bytes(),
            delivered_to,
            message_id,
            id: id.clone(),
        });
        let mail = self.mails.last().expect("just put there");
        (
            200,
            json!({ "id": id, "threadId": mail.thread_id, "labelIds": ["SENT"] }),
        )
    }

    fn list(&self, owner: &Token, seen: &Seen) -> (u16, Value) {
        let own = self.mails.iter().rev().filter(|mail| mail.account == owner.account);
        let most = seen
            .parameter("maxResults")
            .map_or(100, |number| number.parse().expect("a number"));
        let found: Vec<_> = match (seen.parameter("q"), seen.parameter("labelIds")) {
            (Some(_), _) if owner.scopes.contains(METADATA) => return refusal(403, "forbidden"),
            (Some(_), _) if self.search_lags => Vec::new(),
            (Some(query), _) => {
                let wanted = query.strip_prefix("rfc822msgid:").expect("a search for a message's id");
                own.filter(|mail| mail.message_id == wanted).collect()
            }
            (None, label) => own
                .filter(|mail| label.is_none_or(|label| mail.label == label))
                .collect(),
        };
        let shown = found
            .iter()
            .take(most)
            .map(|mail| json!({ "id": mail.id, "threadId": mail.thread_id }));
        let mut body = json!({ "resultSizeEstimate": found.len() });
        if !found.is_empty() {
            body["messages"] = shown.collect();
        }
        if found.len() > most {
            body["nextPageToken"] = "next".into();
        }
        (200, body)
    }

    fn get(&self, account: &str, id: &str, seen: &Seen) -> (u16, Value) {
        let found = self.mails.iter().find(|mail| mail.account == account && mail.id == id);
        found.map_or(refusal(404, "notFound"), |mail| (200, metadata(mail, seen)))
    }

    fn thread(&self, account: &str, id: &str, seen: &Seen) -> (u16, Value) {
        let own = self
            .mails
            .iter()
            .filter(|mail| mail.account == account && mail.thread_id == id);
        let messages: Vec<_> = own.map(|mail| metadata(mail, seen)).collect();
        if messages.is_empty() {
            return refusal(404, "notFound");
        }
        (200, json!({ "id": id, "messages": messages }))
    }

    fn insert(&mut self, account: &str, calendar: &str, seen: &Seen) -> (u16, Value) {
        let mut event = seen.json();
        let id = event["id"].as_str().expect("an id of the caller's").to_owned();
        let fits = (5..=1024).contains(&id.len()) && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'v'));
        if !fits || calendar == "missing" {
            return if fits {
                refusal(404, "notFound")
            } else {
                refusal(400, "invalid")
            };
        }
        let place = (account.to_owned(), calendar.to_owned(), id.clone());
        if self.events.contains_key(&place) {
            return refusal(409, "duplicate");
        }
        event["status"] = "confirmed".into();
        event["htmlLink"] = format!("https://calendar.example/{id}").into();
        let wants_call = event.get("conferenceData").is_some();
        if wants_call && seen.parameter("conferenceDataVersion") == Some("1") {
            event["hangoutLink"] = "https://meet.example/abc".into();
        }
        if seen.parameter("sendUpdates").is_some_and(|updates| updates != "none") {
            for attendee in event["attendees"].as_array().into_iter().flatten() {
                let email = attendee["email"].as_str().expect("an address").to_owned();
                self.invitations.push((email, id.clone()));
            }
        }
        self.events.insert(place, event.clone());
        (200, event)
    }

    fn event(&self, account: &str, calendar: &str, id: &str) -> (u16, Value) {
        let place = (account.to_owned(), calendar.to_owned(), id.to_owned());
        self.events
            .get(&place)
            .map_or(refusal(404, "notFound"), |event| (200, event.clone()))
    }
}

/// The requested headers, as Gmail returns them.
fn metadata(mail: &Mail, seen: &Seen) -> Value {
    assert_eq!(seen.parameter("format"), Some("metadata"), "bodies are never requested");
    let message = mail.message();
    let wanted = seen.query.iter().filter(|(name, _)| name == "metadataHeaders");
    let headers: Vec<_> = wanted
        .filter_map(|(_, name)| {
            let value = match message.header(name.as_str())? {
                HeaderValue::Text(text) if name == "Message-ID" => format!("<{text}>"),
                HeaderValue::Text(text) if name == "References" => format!("<{text}>"),
                HeaderValue::Text(text) => text.to_string(),
                HeaderValue::TextList(list) => list.iter().map(|id| format!("<{id}>")).collect::<Vec<_>>().join(" "),
                _ => return None,
            };
            Some(json!({ "name": name, "value": value }))
        })
        .collect();
    json!({
        "id": mail.id, "threadId": mail.thread_id, "labelIds": [mail.label],
        "internalDate": mail.internal_date.to_string(), "payload": { "headers": headers }
    })
}

/// An e-mail without one of its headers.
fn without(text: &str, name: &str) -> String {
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let mut out = String::new();
    let mut dropping = false;
    for line in head.split("\r\n") {
        dropping = match line.starts_with([' ', '\t']) {
            true => dropping,
            false => line
                .to_ascii_lowercase()
                .starts_with(&format!("{}:", name.to_ascii_lowercase())),
        };
        if !dropping {
            out.push_str(line);
            out.push_str("\r\n");
        }
    }
    format!("{out}\r\n{body}")
}

fn refusal(status: u16, reason: &str) -> (u16, Value) {
    let body = json!({
        "error": {
            "code": status, "message": "canary-words of Google",
            "errors": [{ "domain": "global", "reason": reason, "message": "canary-words of Google" }]
        }
    });
    (status, body)
}

fn refuse(status: u16, reason: &str) -> Reply {
    let (status, body) = refusal(status, reason);
    json_reply(status, &body)
}

fn json_reply(status: u16, body: &Value) -> Reply {
    let mut reply = Response::new(Full::from(body.to_string()));
    *reply.status_mut() = StatusCode::from_u16(status).expect("a status");
    reply
        .headers_mut()
        .insert("content-type", "application/json".parse().expect("a value"));
    reply
}

fn now_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
    since.as_millis() as u64
}
