//! What a handler takes of a request, and what it answers.
//!
//! A handler is one function: `async fn grant(ctx: Ctx, acting: Acting, Id(id): Id<GrantId>) -> Result<Json<Grant>, Error>`.
//! Its parameters are taken from the request one after another, in their order, and each says what the API description
//! tells of it. [`Ctx`] is first: it authenticates the caller before anything else of the request is read.

use std::ops::Deref;
use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderMap};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::Instrument;
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::path::{Operation, Parameter};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::{Ref, RefOr, Required, Schema};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use super::body::{self, Body};
use super::error::{Code, Error};
use super::exchange::Exchange;
use super::openapi::params::{ActingUser, CamelPaging, KeyOfAnswer, Paging, RowsOfUser};
use super::openapi::problems;
use super::routes::Route;
use super::runs::Patience;
use super::spelling::Spelling;
use super::{Edge, State, acting, headers, idempotency, query};
use crate::domain::ids::UserId;
use crate::surfaces::caller::Caller;
use crate::surfaces::decisions::ListQuery;
use crate::surfaces::request::{Claim, RequestMeta};

/// A request as its handler takes it apart.
pub(super) struct Request {
    state: Data<State>,
    http: HttpRequest,
    payload: Option<Payload>,
    /// Absent once an answer completes it.
    exchange: Option<Exchange>,
    caller: Option<Caller>,
    /// The user for whom it acts, once a parameter has read it.
    user: Option<UserId>,
    /// Held until the answer, with its share of the memory for bodies.
    body: Option<Body>,
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
                reads_query: false,
            };
            handler.answer(&mut request).instrument(span).await
        },
    )
}

/// What a parameter of a handler takes of a request.
pub(super) trait Take: Sized {
    async fn take(request: &mut Request) -> Result<Self, Error>;

    /// What the API description tells of it.
    fn describe(_: &mut About<'_>) {}
}

/// An operation of the API description.
pub(super) struct About<'a> {
    pub(super) operation: &'a mut Operation,
    /// Schemas that it refers to, by name.
    pub(super) schemas: &'a mut Vec<(String, RefOr<Schema>)>,
    pub(super) route: &'static Route,
}

impl About<'_> {
    pub(super) fn parameters<P: IntoParams>(&mut self) {
        let parameters = self.operation.parameters.get_or_insert_default();
        parameters.extend(P::into_params(|| None).into_iter().map(RefOr::T));
    }

    pub(super) fn parameter(&mut self, parameter: Parameter) {
        self.operation
            .parameters
            .get_or_insert_default()
            .push(RefOr::T(parameter));
    }

    pub(super) fn problems(&mut self, codes: &[Code]) {
        problems::add(self.operation, codes);
    }

    fn schema<T: ToSchema>(&mut self) -> Ref {
        self.schemas.push((T::name().into_owned(), T::schema()));
        T::schemas(self.schemas);
        Ref::from_schema_name(T::name())
    }
}

/// A handler: a function of up to five parameters.
pub(super) trait Handler<A>: Copy + 'static {
    async fn answer(self, request: &mut Request) -> HttpResponse;
    fn describe(about: &mut About<'_>);
}

macro_rules! handlers {
    ($(($($parameter:ident)*))+) => {
        $(impl<F, R, $($parameter: Take),*> Handler<($($parameter,)*)> for F
        where
            F: Fn($($parameter),*) -> R + Copy + 'static,
            R: Future<Output: Outcome>,
        {
            #[allow(non_snake_case, reason = "a parameter has the name of its type")]
            async fn answer(self, request: &mut Request) -> HttpResponse {
                let taken = async {
                    $(let $parameter = $parameter::take(request).await?;)*
                    if !request.reads_query {
                        query::none(request.http.query_string())?;
                    }
                    Ok(($($parameter,)*))
                };
                match taken.await {
                    Ok(($($parameter,)*)) => self($($parameter),*).await.respond(request.exchange.take()),
                    Err(error) => Err::<HttpResponse, Error>(error).respond(request.exchange.take()),
                }
            }

            fn describe(about: &mut About<'_>) {
                $($parameter::describe(about);)*
                R::Output::describe(about);
            }
        })+
    };
}

handlers! { () (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E G) }

/// How a handler ends.
pub(super) trait Outcome {
    fn respond(self, exchange: Option<Exchange>) -> HttpResponse;
    fn describe(_: &mut About<'_>) {}
}

impl<T: Answer> Outcome for Result<T, Error> {
    fn respond(self, exchange: Option<Exchange>) -> HttpResponse {
        let exchange = exchange.unwrap_or_else(|| unreachable!("only `Raw` takes the exchange"));
        match self {
            Ok(answer) => answer.respond(exchange),
            Err(error) => exchange.finish(Err(error)),
        }
    }

    fn describe(about: &mut About<'_>) {
        T::describe(about);
    }
}

/// A handler that took [`Raw`] has completed the exchange.
impl Outcome for HttpResponse {
    fn respond(self, _: Option<Exchange>) -> HttpResponse {
        self
    }
}

/// What a handler returns.
pub(super) trait Answer {
    /// Completes the exchange, or hands it over to a stream.
    fn respond(self, exchange: Exchange) -> HttpResponse;

    /// What the API description tells of it.
    fn describe(_: &mut About<'_>) {}
}

impl Answer for HttpResponse {
    fn respond(self, exchange: Exchange) -> HttpResponse {
        exchange.finish(Ok(self))
    }
}

/// An answer of 200 with a body.
pub(super) struct Json<T>(pub(super) T);

impl<T: Serialize + ToSchema> Answer for Json<T> {
    fn respond(self, exchange: Exchange) -> HttpResponse {
        exchange.finish(Ok(json(StatusCode::OK, &self.0)))
    }

    fn describe(about: &mut About<'_>) {
        let schema = about.schema::<T>();
        let content = ContentBuilder::new().schema(Some(schema)).build();
        let response = ResponseBuilder::new()
            .description("The response.")
            .content("application/json", content);
        let responses = &mut about.operation.responses.responses;
        responses
            .entry("200".to_owned())
            .or_insert_with(|| RefOr::T(response.build()));
    }
}

/// A response that is not stored. It is written directly: an intermediate JSON value would parse what is kept as text,
/// and take many times its size.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> HttpResponse {
    let text = serde_json::to_string(value).unwrap_or_else(|error| unreachable!("an answer is JSON: {error}"));
    HttpResponse::build(status)
        .insert_header((header::CONTENT_TYPE, headers::JSON))
        .insert_header((header::CACHE_CONTROL, headers::NO_STORE))
        .body(text)
}

/// An answer of 204.
pub(super) struct NoContent;

impl Answer for NoContent {
    fn respond(self, exchange: Exchange) -> HttpResponse {
        exchange.finish(Ok(HttpResponse::NoContent().finish()))
    }
}

/// The whole request, of a handler that completes the exchange itself.
pub(super) struct Raw {
    pub(super) state: Data<State>,
    pub(super) request: HttpRequest,
    pub(super) payload: Payload,
    pub(super) exchange: Exchange,
}

impl Take for Raw {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        request.reads_query = true;
        let (Some(payload), Some(exchange)) = (request.payload.take(), request.exchange.take()) else {
            unreachable!("a handler that takes `Raw` takes nothing else");
        };
        Ok(Self {
            state: Data::clone(&request.state),
            request: request.http.clone(),
            payload,
            exchange,
        })
    }
}

/// The authenticated caller, and the surfaces.
pub(super) struct Ctx {
    pub(super) caller: Caller,
    pub(super) state: Data<State>,
    http: HttpRequest,
}

impl Deref for Ctx {
    type Target = Edge;

    fn deref(&self) -> &Edge {
        &self.state.edge
    }
}

impl Take for Ctx {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        let caller = request.state.edge.auth.caller(&request.http).await?;
        request.caller = Some(caller.clone());
        Ok(Self {
            caller,
            state: Data::clone(&request.state),
            http: request.http.clone(),
        })
    }
}

impl Ctx {
    pub(super) fn headers(&self) -> &HeaderMap {
        self.http.headers()
    }
}

impl Request {
    fn exchange(&self) -> &Exchange {
        self.exchange
            .as_ref()
            .unwrap_or_else(|| unreachable!("the exchange is completed last"))
    }

    fn exchange_mut(&mut self) -> &mut Exchange {
        self.exchange
            .as_mut()
            .unwrap_or_else(|| unreachable!("the exchange is completed last"))
    }

    fn claim(&self, user: Option<&UserId>) -> Result<Option<Claim>, Error> {
        let body = self.body.as_deref().unwrap_or_default();
        let key = idempotency::key(self.http.headers())?;
        Ok(key.map(|key| idempotency::claim(key, self.caller(), user, self.http.path(), body)))
    }

    fn caller(&self) -> &Caller {
        self.caller
            .as_ref()
            .unwrap_or_else(|| unreachable!("a handler takes its `Ctx` first"))
    }
}

/// The user for whom the caller acts, if it names one or is one. A service that reads may omit it to see all its users.
pub(super) struct Acting(pub(super) Option<UserId>);

impl Take for Acting {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        request.user = acting::user(&request.state, request.caller(), &request.http)?;
        Ok(Self(request.user.clone()))
    }

    fn describe(about: &mut About<'_>) {
        about.parameters::<ActingUser>();
        about.problems(&[Code::UserMismatch]);
    }
}

/// The user for whom the caller acts.
pub(super) struct User(pub(super) UserId);

impl Take for User {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        let user = acting::required(&request.state, request.caller(), &request.http)?;
        request.user = Some(user.clone());
        Ok(Self(user))
    }

    fn describe(about: &mut About<'_>) {
        Acting::describe(about);
    }
}

/// The user whose rows are asked for; `None`: of all users that the caller may see.
pub(super) struct RowsOf(pub(super) Option<UserId>);

impl Take for RowsOf {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        acting::named_by(request.caller(), &request.http).map(Self)
    }

    fn describe(about: &mut About<'_>) {
        about.parameters::<RowsOfUser>();
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
        about.parameters::<KeyOfAnswer>();
    }
}

/// What the surface learns of the request beside its body. It takes the key as [`Key`] does.
pub(super) struct Meta(pub(super) RequestMeta);

impl Take for Meta {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        // A run keeps its own user, whoever continues it: without a user, the key is bound to the caller alone.
        let user = request
            .user
            .clone()
            .or_else(|| UserId::parse(request.caller().name()).ok());
        Ok(Self(RequestMeta {
            request_id: Arc::clone(&request.exchange().id.text),
            traceparent: headers::traceparent(request.http.headers()),
            idempotency: request.claim(Some(&user.ok_or(Error::Internal)?))?,
            shed: None,
        }))
    }

    fn describe(about: &mut About<'_>) {
        about.parameters::<super::openapi::params::Acting>();
        about.problems(&[Code::IdempotencyKeyReused]);
    }
}

/// An id of the path.
pub(super) struct Id<T>(pub(super) T);

/// What an id of a path names.
pub(super) trait Named: Sized {
    /// The parameter of the path.
    const PARAMETER: &'static str = "id";
    /// What it is, for the API description.
    const ABOUT: &'static str;
    /// The object, for the error that there is none.
    const OBJECT: &'static str;

    fn parse(text: &str) -> Option<Self>;
}

/// Most characters of a name that an error repeats; valid names are shorter.
const LONGEST_NAME: usize = 80;

impl<T: Named> Take for Id<T> {
    /// An invalid id is not found, like an id of another tenant or user.
    async fn take(request: &mut Request) -> Result<Self, Error> {
        let text = request.http.match_info().get(T::PARAMETER).unwrap_or_default();
        let name: String = text.chars().take(LONGEST_NAME).collect();
        let id = T::parse(text);
        let missing = format!("There is no {} {name:?}, or it belongs to another user.", T::OBJECT);
        request.exchange_mut().missing = Some(missing);
        id.map(Self).ok_or(Error::NotFound)
    }

    fn describe(about: &mut About<'_>) {
        let parameter = Parameter::builder()
            .name(T::PARAMETER)
            .parameter_in(utoipa::openapi::path::ParameterIn::Path)
            .required(Required::True)
            .description(Some(T::ABOUT))
            .schema(Some(String::schema()));
        about.parameter(parameter.build());
        about.problems(&[Code::NotFound]);
    }
}

/// The page of a list that is asked for.
pub(super) struct List(pub(super) ListQuery);

impl Take for List {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        request.reads_query = true;
        let spelling = Spelling::of(request.exchange().route);
        query::list(spelling, request.http.query_string()).map(Self)
    }

    fn describe(about: &mut About<'_>) {
        match Spelling::of(Some(about.route)) {
            Spelling::Snake => about.parameters::<Paging>(),
            Spelling::Camel => about.parameters::<CamelPaging>(),
        }
        about.problems(&[Code::QueryTooSlow]);
    }
}

/// A body that serde reads.
pub(super) trait Given: DeserializeOwned + ToSchema {
    /// Its form, for errors.
    const FORM: &'static str;
}

/// The body.
pub(super) struct Sent<T>(pub(super) T);

impl<T: Given> Take for Sent<T> {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        let payload = request
            .payload
            .take()
            .unwrap_or_else(|| unreachable!("a body is read once"));
        let body = body::read(&request.state, &request.http, payload, request.caller()).await?;
        let given = body::parse(&body, T::FORM)?;
        request.body = Some(body);
        Ok(Self(given))
    }

    fn describe(about: &mut About<'_>) {
        let schema = about.schema::<T>();
        let content = ContentBuilder::new().schema(Some(schema)).build();
        let body = RequestBodyBuilder::new()
            .content("application/json", content)
            .required(Some(Required::True));
        about
            .operation
            .request_body
            .get_or_insert_with(|| RefOr::T(body.build()));
    }
}

impl Take for Patience {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        Self::of(request.http.headers())
    }

    fn describe(about: &mut About<'_>) {
        about.parameters::<super::openapi::params::Prefer>();
    }
}
