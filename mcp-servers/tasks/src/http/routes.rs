//! The paths: only `/mcp` and `/healthz`.

use std::convert::Infallible;
use std::time::Duration;

use gavel_mcp_base::Server;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, StatusCode};
use rmcp::transport::streamable_http_server::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;

use super::body::Timed;
use crate::server::Tasks;
use crate::store::Store;

pub(super) type Mcp = StreamableHttpService<Server<Tasks>, NeverSessionManager>;
type Body = BoxBody<Bytes, Infallible>;

const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) struct Routes {
    pub(super) mcp: Mcp,
    pub(super) store: Store,
}

impl Routes {
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        match request.uri().path() {
            "/mcp" => self.mcp.handle(request.map(Timed::new)).await,
            "/healthz" => self.health().await,
            _ => json(StatusCode::NOT_FOUND, r#"{"error":"not found; MCP is at /mcp"}"#),
        }
    }

    async fn health(&self) -> Response<Body> {
        match tokio::time::timeout(HEALTH_TIMEOUT, self.store.ping()).await {
            Ok(Ok(())) => json(StatusCode::OK, r#"{"status":"ok"}"#),
            _ => json(
                StatusCode::SERVICE_UNAVAILABLE,
                r#"{"status":"the database does not answer"}"#,
            ),
        }
    }
}

fn json(status: StatusCode, body: &'static str) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from_static(body.as_bytes())).boxed());
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
