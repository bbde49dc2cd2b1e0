//! The edge: extract, call one surface, answer.
//!
//! Order: auth → limits and parse → user → idempotency → quota → admission → surface (the last
//! three inside the surface, so that a refusal is on the record too).

pub mod body;
pub mod caller;
pub mod docs;
pub mod error;
pub mod health;

mod chat;
mod decisions;
mod request;
mod stream;

use std::net::TcpListener;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::Server;
use actix_web::http::header::HeaderValue;
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};

use self::caller::Auth;
use self::error::{Code, Problem};
use self::health::Surroundings;
use crate::surfaces::chat::Chat;
use crate::surfaces::decisions::DecisionQueries;

/// The header that names a request in answers, logs and records.
pub const REQUEST_ID: &str = "x-request-id";

/// Everything the routes call.
pub struct Edge {
    /// Chat decisions.
    pub chat: Arc<Chat>,
    /// The record.
    pub decisions: DecisionQueries,
    /// Who may ask.
    pub auth: Auth,
    /// Health and metrics.
    pub surroundings: Arc<dyn Surroundings>,
}

/// How the server listens.
#[derive(Clone, Copy, Debug)]
pub struct ServerSettings {
    /// Threads; `None`: one for each core.
    pub workers: Option<NonZeroUsize>,
    /// How long a stop waits for requests under way.
    pub drain: Duration,
}

/// A server on `listener`, not yet running: await it. It does not listen for signals.
///
/// # Errors
/// The listener cannot be used.
pub fn server(edge: Edge, listener: TcpListener, settings: ServerSettings) -> std::io::Result<Server> {
    let edge = Data::new(edge);
    let mut server = HttpServer::new(move || App::new().app_data(edge.clone()).configure(routes))
        // Nagle against delayed ACK costs 40 ms; a client that is gone is to be noticed.
        .tcp_nodelay(true)
        .h1_allow_half_closed(false)
        .keep_alive(Duration::from_secs(75))
        .client_request_timeout(Duration::from_secs(10))
        .client_disconnect_timeout(Duration::from_secs(2))
        .backlog(4096)
        .shutdown_timeout(settings.drain.as_secs().max(1))
        .disable_signals();
    if let Some(workers) = settings.workers {
        server = server.workers(workers.get());
    }
    Ok(server.listen_auto_h2c(listener)?.run())
}

/// The route table: path, methods. `docs::ApiDoc` describes each (a test walks both).
pub const ROUTES: &[(&str, &str)] = &[
    ("/v1/chat", "POST"),
    ("/v1/chat/stream", "POST"),
    ("/v1/decisions", "GET, HEAD"),
    ("/v1/decisions/{id}", "GET, HEAD"),
    ("/v1/tool-invocations", "GET, HEAD"),
    ("/livez", "GET, HEAD"),
    ("/readyz", "GET, HEAD"),
    ("/metrics", "GET, HEAD"),
    ("/openapi.json", "GET, HEAD"),
];

fn routes(config: &mut ServiceConfig) {
    for (path, methods) in ROUTES {
        let resource = web::resource(*path);
        let resource = match *path {
            "/v1/chat" => resource.route(web::post().to(chat::decide)),
            "/v1/chat/stream" => resource.route(web::post().to(stream::decide)),
            "/v1/decisions" => resource
                .route(web::get().to(decisions::list))
                .route(web::head().to(decisions::list)),
            "/v1/decisions/{id}" => resource
                .route(web::get().to(decisions::get))
                .route(web::head().to(decisions::get)),
            "/v1/tool-invocations" => resource
                .route(web::get().to(decisions::tool_invocations))
                .route(web::head().to(decisions::tool_invocations)),
            "/livez" => resource
                .route(web::get().to(health::livez))
                .route(web::head().to(health::livez)),
            "/readyz" => resource
                .route(web::get().to(health::readyz))
                .route(web::head().to(health::readyz)),
            "/metrics" => resource
                .route(web::get().to(health::metrics))
                .route(web::head().to(health::metrics)),
            "/openapi.json" => resource
                .route(web::get().to(docs::openapi))
                .route(web::head().to(docs::openapi)),
            other => unreachable!("no handler for {other}"),
        };
        let allowed = HeaderValue::from_static(methods);
        config.service(resource.default_service(web::to(move |request: HttpRequest| {
            wrong_method(request, allowed.clone())
        })));
    }
    config.service(web::resource("/").route(web::get().to(to_docs)));
    config.service(docs::pages());
    config.default_service(web::to(unknown_route));
}

async fn to_docs() -> HttpResponse {
    HttpResponse::Found().insert_header(("location", "/docs/")).finish()
}

async fn wrong_method(request: HttpRequest, allowed: HeaderValue) -> HttpResponse {
    let id = request::request_id(request.headers());
    let detail = format!(
        "{} is not allowed here; {} is",
        request.method(),
        allowed.to_str().unwrap_or_default()
    );
    let mut response = Problem::new(Code::MethodNotAllowed, detail, &id).respond();
    response.headers_mut().insert(actix_web::http::header::ALLOW, allowed);
    response
}

async fn unknown_route(request: HttpRequest) -> HttpResponse {
    let id = request::request_id(request.headers());
    Problem::new(Code::NotFound, "there is no such route; /docs describes the API", &id).respond()
}

fn json_response(body: String, request_id: &Arc<str>) -> HttpResponse {
    let mut builder = HttpResponse::Ok();
    if let Ok(id) = HeaderValue::from_str(request_id) {
        builder.insert_header((REQUEST_ID, id));
    }
    builder.content_type("application/json").body(body)
}
