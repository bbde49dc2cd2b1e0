//! What a handler takes of a request.
//!
//! A handler is one function: `async fn grant(ctx: Ctx, acting: Acting, Id(id): Id<GrantId>) -> Result<Json<Grant>, Error>`.
//! Its parameters are taken from the request one after another, in their order, and each says what the API description
//! tells of it. [`Ctx`] is first: it authenticates the caller before anything else of the request is read.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use actix_web::http::header::{HeaderMap, HeaderName};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use serde::de::DeserializeOwned;
use tracing::Instrument;
use utoipa::ToSchema;
use utoipa::openapi::security::SecurityRequirement;

use crate::api::filter::Listed;
use crate::domain::budget::{Exceeded, Share};
use crate::domain::ids::UserId;
use crate::http::answer::Answer;
use crate::http::body::{self, Arriving, Body, Media};
use crate::http::caller::Auth;
use crate::http::error::{Code, Error};
use crate::http::exchange::Exchange;
use crate::http::headers::{self, only};
use crate::http::openapi::{self, About, in_query, key, string, user};
use crate::http::query::{self, DEFAULT_PAGE, Fields, MAX_PAGE, Parameters};
use crate::http::routes::{Path, Route};
use crate::http::spelling::Spelling;
use crate::http::{Edge, State};
use crate::surfaces::caller::Caller;
use crate::surfaces::decisions::ListQuery;
use crate::surfaces::request::{Claim, RequestMeta};

/// A request as its handler takes it apart.
pub(super) struct Request {
    pub(super) state: Data<State>,
    pub(super) http: HttpRequest,
    payload: Option<Payload>,
    /// Absent once an answer completes it.
    exchange: Option<Exchange>,
    caller: Option<Caller>,
    /// The user for whom it acts, once a parameter has read it.
    pub(super) user: Option<UserId>,
    /// For the parameters that refer to it. It is freed with its share of the memory for bodies before the handler
    /// begins, which may take hours.
    body: Option<Body>,
    /// Why there is no room for the stream that it asks for.
    shed: Option<Exceeded>,
    /// The token that a form of its visitor contains.
    pub(super) form_token: Option<String>,
    /// Whether a parameter of the handler has read the query. A query that none reads must be empty: what is misspelt
    /// would otherwise be ignored silently.
    reads_query: bool,
}

/// Answers requests of a route by its handler.
pub(super) fn to<A: 'static, H: Handler<A>>(route: &'static Route, handler: H) -> actix_web::Route {
    actix_web::web::route().to(
        move |state: Data<State>, http: HttpRequest, payload: Payload| async move {
            let exchange = Exchange::begin(&state, &http, Some(route));
            let span = exchange.span.clone();
            let mut request = Request {
                state,
                http,
                payload: Some(payload),
                exchange: Some(exchange),
                caller: None,
                user: None,
                body: None,
                shed: None,
                form_token: None,
                reads_query: false,
            };
            handler.answer(&mut request).instrument(span).await
        },
    )
}

/// What a parameter of a handler takes of a request, if it does not fail with `E`.
pub(super) trait Take<E = Error>: Sized {
    async fn take(request: &mut Request) -> Result<Self, E>;

    /// What the API description tells of it.
    fn describe(_: &mut About<'_>) {}
}

/// Why a request has no answer of its handler.
pub(super) trait Failure: From<Error> {
    async fn respond(self, request: &mut Request) -> HttpResponse;
}

impl Failure for Error {
    async fn respond(self, request: &mut Request) -> HttpResponse {
        request.end().finish(Err(self))
    }
}

/// A handler: a function of up to seven parameters.
pub(super) trait Handler<A>: Copy + 'static {
    async fn answer(self, request: &mut Request) -> HttpResponse;
    fn describe(about: &mut About<'_>);
}

macro_rules! handlers {
    ($(($($parameter:ident)*))+) => {
        $(impl<F, R, T, E, $($parameter: Take<E>),*> Handler<($($parameter,)*)> for F
        where
            F: Fn($($parameter),*) -> R + Copy + 'static,
            R: Future<Output = Result<T, E>>,
            T: Answer,
            E: Failure,
        {
            #[allow(non_snake_case, reason = "a parameter has the name of its type")]
            async fn answer(self, request: &mut Request) -> HttpResponse {
                let answer = async {
                    $(let $parameter = $parameter::take(request).await?;)*
                    if !request.reads_query {
                        query::none(request.http.query_string())?;
                    }
                    request.body = None;
                    self($($parameter),*).await
                };
                match answer.await {
                    Ok(answer) => answer.respond(request.end()),
                    Err(error) => error.respond(request).await,
                }
            }

            fn describe(about: &mut About<'_>) {
                $($parameter::describe(about);)*
                T::describe(about);
            }
        })+
    };
}

handlers! { () (A) (A B) (A B C) (A B C D) (A B C D G) (A B C D G H) (A B C D G H I) }

impl Request {
    pub(super) fn exchange(&self) -> &Exchange {
        self.exchange
            .as_ref()
            .unwrap_or_else(|| unreachable!("the exchange is completed last"))
    }

    /// The exchange, to complete it.
    pub(super) fn end(&mut self) -> Exchange {
        self.exchange
            .take()
            .unwrap_or_else(|| unreachable!("the exchange is completed once"))
    }

    pub(super) fn caller(&self) -> &Caller {
        self.caller
            .as_ref()
            .unwrap_or_else(|| unreachable!("a handler takes its `Ctx` first"))
    }

    /// Its body. That of an authenticated caller counts for the caller, any other for its address.
    pub(super) fn arriving(&mut self) -> Arriving<'_, impl FnOnce(u64) -> Result<Share, Exceeded>> {
        let payload = self.payload.take();
        Arriving {
            http: &self.http,
            payload: payload.unwrap_or_else(|| unreachable!("a body is read once")),
            limits: &self.state.edge.limits,
            take: |bytes| match &self.caller {
                Some(caller) => self
                    .state
                    .room
                    .bodies
                    .take(caller.tenant.as_str(), &caller.name(), bytes),
                None => {
                    let address = self.http.peer_addr().map(|peer| peer.ip().to_string());
                    self.state.room.bodies.take("", &address.unwrap_or_default(), bytes)
                }
            },
        }
    }

    /// Keeps the body for the key of the request.
    pub(super) fn keep(&mut self, body: Body) -> &Body {
        self.body.insert(body)
    }

    /// The text of the query, which the parameter checks.
    pub(super) fn query(&mut self) -> &str {
        self.reads_query = true;
        self.http.query_string()
    }

    fn claim(&self, user: Option<&UserId>) -> Result<Option<Claim>, Error> {
        let body = self.body.as_deref().unwrap_or_default();
        let key = headers::key(self.http.headers())?;
        Ok(key.map(|key| headers::claim(key, self.caller(), user, self.http.path(), body)))
    }
}

/// The authenticated caller, and the surfaces.
pub(super) struct Ctx {
    pub(super) caller: Caller,
    open: Open,
}

/// The surfaces, for a route without credentials. It ignores a query that it does not know.
pub(super) struct Open {
    pub(super) state: Data<State>,
    pub(super) http: HttpRequest,
}

impl Deref for Open {
    type Target = Edge;

    fn deref(&self) -> &Edge {
        &self.state.edge
    }
}

impl Deref for Ctx {
    type Target = Open;

    fn deref(&self) -> &Open {
        &self.open
    }
}

impl Open {
    fn new(request: &Request) -> Self {
        Self {
            state: Data::clone(&request.state),
            http: request.http.clone(),
        }
    }

    pub(super) fn headers(&self) -> &HeaderMap {
        self.http.headers()
    }
}

impl<E> Take<E> for Open {
    async fn take(request: &mut Request) -> Result<Self, E> {
        request.reads_query = true;
        Ok(Self::new(request))
    }

    fn describe(about: &mut About<'_>) {
        about.operation.security = Some(vec![SecurityRequirement::default()]);
    }
}

impl Take for Ctx {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        let caller = request.state.edge.auth.caller(&request.http).await?;
        request.caller = Some(caller.clone());
        let open = Open::new(request);
        Ok(Self { caller, open })
    }

    fn describe(about: &mut About<'_>) {
        about.problems(&[
            Code::InvalidRequest,
            Code::Unauthenticated,
            Code::RecordUnavailable,
            Code::AuthUnavailable,
        ]);
    }
}

/// For a handler that also answers without it.
impl<T: Take<E>, E> Take<E> for Result<T, E> {
    async fn take(request: &mut Request) -> Result<Self, E> {
        Ok(T::take(request).await)
    }
}

/// The user for whom the caller acts, if it names one or is one. A service that reads may omit it to see all its users.
pub(super) struct Acting(pub(super) Option<UserId>);

impl Take for Acting {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        let named = named_user(request.http.headers())?;
        request.user = match request.caller().act_for(named)? {
            None if matches!(request.state.edge.auth, Auth::None(_)) => UserId::parse(LOCAL).ok(),
            user => user,
        };
        Ok(Self(request.user.clone()))
    }

    fn describe(about: &mut About<'_>) {
        about.parameter(user(
            "The acting user, for a caller that is a service (`auth.mode` `none` or `api_key`). With `none`, absent means\n\
             `local`; a service that reads may omit it to see its whole tenant.",
        ));
        about.problems(&[Code::UserMismatch]);
    }
}

/// The user for whom the caller acts.
pub(super) struct User(pub(super) UserId);

impl Take for User {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        let Acting(user) = Acting::take(request).await?;
        let missing = "is missing; it must name the user the agent acts for, since no token names one";
        Ok(Self(user.ok_or_else(|| Error::header(USER_NAME, missing))?))
    }

    fn describe(about: &mut About<'_>) {
        Acting::describe(about);
    }
}

/// The user whose rows are asked for; `None`: of all users that the caller may see.
pub(super) struct RowsOf(pub(super) Option<UserId>);

impl Take for RowsOf {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        let Some(named) = named_user(request.http.headers())? else {
            return Ok(Self(None));
        };
        Ok(Self(request.caller().act_for(Some(named))?))
    }

    fn describe(about: &mut About<'_>) {
        about.parameter(user(
            "The user whose rows are returned, for a caller that is a service (`auth.mode` `none` or `api_key`). Absent:\n\
             those of the whole tenant. A user may name only themselves.",
        ));
        about.problems(&[Code::UserMismatch]);
    }
}

/// The request's `Idempotency-Key`, bound to the caller, the user, the path (the same key for another agent is another
/// key) and the body, which other parameters have read before it.
pub(super) struct Key(pub(super) Option<Claim>);

impl Take for Key {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        request.claim(request.user.as_ref()).map(Self)
    }

    fn describe(about: &mut About<'_>) {
        about.parameter(key(
            "For 24 h another body under the same key gets 422. Repeating the request changes nothing, with or without a\n\
             key, and returns the current state.",
        ));
    }
}

/// What the surface learns of the request beside its body. It takes the key as [`Key`] does.
pub(super) struct Meta(pub(super) RequestMeta);

impl Take for Meta {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        // A run keeps its own user, also if another person continues it: without a user, the key is bound to the
        // caller alone.
        let caller;
        let user = match &request.user {
            Some(user) => user,
            None => {
                caller = UserId::parse(request.caller().name()).map_err(|_| Code::Internal)?;
                &caller
            }
        };
        Ok(Self(RequestMeta {
            request_id: Arc::clone(&request.exchange().id.text),
            traceparent: headers::traceparent(request.http.headers()),
            idempotency: request.claim(Some(user))?,
            background: false,
            shed: request.shed,
        }))
    }

    fn describe(about: &mut About<'_>) {
        about.parameter(key(
            "Makes a retry safe. For 24 h the same key and body return the stored response (`Idempotency-Replayed: true`),\n\
             another body gets 422, and while the first request is running 409. Keys of different callers, users and routes\n\
             are different keys.",
        ));
        let trace = "W3C trace context, passed on to MCP servers; an invalid one is ignored.";
        about.parameter(openapi::header("traceparent", trace, string()));
        about.problems(&[Code::IdempotencyKeyReused]);
    }
}

/// The id of the request.
pub(super) struct RequestName(pub(super) Arc<str>);

impl<E> Take<E> for RequestName {
    async fn take(request: &mut Request) -> Result<Self, E> {
        Ok(Self(Arc::clone(&request.exchange().id.text)))
    }
}

/// Room for a stream of the acting user, or why there is none. It is taken before anything is begun; [`Meta`] tells the
/// surface.
pub(super) struct Room(pub(super) Result<Share, Exceeded>);

impl Take for Room {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        let caller = request.caller();
        let holder = request.user.as_ref().map_or_else(|| caller.name(), UserId::to_string);
        let share = request.state.room.streams.take(caller.tenant.as_str(), &holder, 1);
        request.shed = share.as_ref().err().copied();
        Ok(Self(share))
    }

    fn describe(about: &mut About<'_>) {
        about.problems(&[Code::Overloaded]);
    }
}

/// What the path names.
pub(super) struct Id<T>(pub(super) T);

/// What a path can name.
pub(super) trait Named: Sized {
    /// The segments that name it, and what each is.
    const SEGMENTS: &'static [(&'static str, &'static str)];

    /// The error text if there is none, with names of segments in braces. An object of another user gets the same text.
    const MISSING: &'static str;

    fn parse(path: &Path<'_>) -> Option<Self>;
}

impl<T: Named, E: From<Error>> Take<E> for Id<T> {
    /// An invalid id is not found, like an id of another tenant or user.
    async fn take(request: &mut Request) -> Result<Self, E> {
        if let Some(exchange) = &mut request.exchange {
            exchange.missing = Some(T::MISSING);
        }
        let id = T::parse(&Path(&request.http));
        Ok(Self(id.ok_or_else(|| Error::from(Code::NotFound))?))
    }

    fn describe(about: &mut About<'_>) {
        for (name, description) in T::SEGMENTS {
            about.parameter(openapi::segment(name, description));
        }
        about.problems(&[Code::NotFound]);
    }
}

/// Ids that are the segment `id` of a path.
macro_rules! ids {
    ($($id:ident = $object:literal, $about:literal;)+) => {
        $(impl Named for crate::domain::ids::$id {
            const SEGMENTS: &'static [(&'static str, &'static str)] = &[("id", $about)];
            const MISSING: &'static str = concat!("There is no ", $object, " {id}, or it belongs to another user.");

            fn parse(path: &Path<'_>) -> Option<Self> {
                Self::parse(path.get("id"))
            }
        })+
    };
}

ids! {
    ActionId = "action", "The action's id.";
    ApprovalId = "approval request", "The approval request's id.";
    DecisionId = "decision", "The `decision_id` of a response.";
    ExportId = "export", "The `X-Gavel-Export` of a response.";
    GrantId = "grant", "The grant's id.";
    PlanningSessionId = "planning session", "The session's id.";
    RunId = "run", "The run's id.";
    ThreadId = "thread", "The thread's id.";
}

/// The rows of the list `T` that are asked for.
pub(super) struct List<T>(pub(super) ListQuery, pub(super) PhantomData<T>);

impl<T: Listed> Parameters for List<T> {
    fn read(fields: &mut Fields<'_>) -> Self {
        let Paged(page) = Paged::read(fields);
        let filter = || in_query(&openapi::filter(&T::fields()), string()).example(Some(T::EXAMPLE.into()));
        let list = ListQuery {
            filter: fields.text_of("filter", filter),
            order_by: fields.text_of("order_by", || in_query(&T::orders(), string())),
            ..page
        };
        Self(list, PhantomData)
    }
}

impl<T: Listed> Take for List<T> {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        Query::take(request).await.map(|Query(list)| list)
    }

    fn describe(about: &mut About<'_>) {
        Query::<Self>::describe(about);
        about.problems(&[Code::QueryTooSlow]);
    }
}

/// The page of a list that is asked for.
pub(super) struct Paged(pub(super) ListQuery);

impl Parameters for Paged {
    fn read(fields: &mut Fields<'_>) -> Self {
        let page_size = fields.up_to("page_size", "Rows of a page.", MAX_PAGE, Some(DEFAULT_PAGE));
        let next = fields.spelling.name("next_page_token");
        let token = format!("`{next}` of the previous page; valid only with the same filter and order.");
        Self(ListQuery {
            page_size: page_size.unwrap_or(DEFAULT_PAGE),
            page_token: fields.text("page_token", &token),
            ..ListQuery::default()
        })
    }
}

/// The parameters of the query.
pub(super) struct Query<T>(pub(super) T);

impl<T: Parameters> Take for Query<T> {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        let spelling = Spelling::of(request.exchange().route);
        let mut fields = Fields::new(spelling, request.query());
        let given = T::read(&mut fields);
        fields.end()?;
        Ok(Self(given))
    }

    fn describe(about: &mut About<'_>) {
        let parameters = Fields::describe::<T>(Spelling::of(Some(about.route)));
        parameters.into_iter().for_each(|one| about.parameter(one));
    }
}

/// A body that serde reads.
pub(super) trait Given: DeserializeOwned + ToSchema {
    /// What it is, for the API description.
    const ABOUT: &'static str;
    /// An example as JSON, for the API description.
    const EXAMPLE: &'static str;
}

/// The body.
pub(super) struct Sent<T>(pub(super) T);

impl<T: Given> Take for Sent<T> {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        let body = request.arriving().json().await?;
        body::parse(request.keep(body)).map(Self)
    }

    fn describe(about: &mut About<'_>) {
        about.json::<T>(T::ABOUT, T::EXAMPLE, true);
    }
}

/// The body, which may be absent.
pub(super) struct Optional<T>(pub(super) T);

impl<T: Given + Default> Take for Optional<T> {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        let (body, media) = request.arriving().input().await?;
        let body = request.keep(body);
        match media {
            _ if body.is_empty() => Ok(Self(T::default())),
            Media::Json => body::parse(body).map(Self),
            Media::Text => Err(body::not_json()),
        }
    }

    fn describe(about: &mut About<'_>) {
        about.json::<T>(T::ABOUT, T::EXAMPLE, false);
    }
}

// The acting user of routes whose body has no user: the header `X-Gavel-User`.

const USER: HeaderName = HeaderName::from_static("x-gavel-user");
const USER_NAME: &str = "X-Gavel-User";
/// The acting user when callers are not authenticated and name no user.
pub(super) const LOCAL: &str = "local";

/// The user that the header names, if it is present.
///
/// # Errors
/// The header is invalid.
fn named_user(headers: &HeaderMap) -> Result<Option<UserId>, Error> {
    if !headers.contains_key(&USER) {
        return Ok(None);
    }
    let value = only(headers, &USER).ok_or_else(|| Error::header(USER_NAME, "is given more than once"))?;
    let text = std::str::from_utf8(value.as_bytes()).map_err(|_| Error::header(USER_NAME, "is not UTF-8"))?;
    let user = UserId::parse(text).map_err(|_| {
        Error::header(
            USER_NAME,
            "must be 1 to 256 bytes without invisible characters, and not blank",
        )
    })?;
    Ok(Some(user))
}
