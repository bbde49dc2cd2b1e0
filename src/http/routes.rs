//! The route table. The OpenAPI document and the meters walk it, so neither can miss a route.

use actix_web::guard::fn_guard;
use actix_web::http::Method;
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse, Resource};

use super::State;
use super::error::Error;
use super::exchange::Exchange;
use super::{chat, decisions, docs, health};

/// A method a route has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// `GET`, and with it `HEAD`.
    Get,
    /// `POST`.
    Post,
}

impl Verb {
    /// The value of `Allow`.
    pub(super) const fn allow(self) -> &'static str {
        match self {
            Self::Get => "GET, HEAD",
            Self::Post => "POST",
        }
    }

    fn admits(self, method: &Method) -> bool {
        match self {
            Self::Get => *method == Method::GET || *method == Method::HEAD,
            Self::Post => *method == Method::POST,
        }
    }
}

macro_rules! routes {
    ($($variant:ident: $verb:ident $path:literal => $handler:path;)+) => {
        /// A route.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Route { $($variant,)+ }

        impl Route {
            /// Every route there is.
            pub(super) const ALL: [Self; [$(Self::$variant),+].len()] = [$(Self::$variant),+];

            /// Its path, with places for parameters.
            pub(super) const fn path(self) -> &'static str {
                match self { $(Self::$variant => $path,)+ }
            }

            /// Its method.
            pub(super) const fn verb(self) -> Verb {
                match self { $(Self::$variant => Verb::$verb,)+ }
            }

            fn resource(self) -> Resource {
                let resource = web::resource(self.path());
                let verb = self.verb();
                let route = web::route().guard(fn_guard(move |asked| verb.admits(&asked.head().method)));
                match self { $(Self::$variant => resource.route(route.to($handler)),)+ }
            }
        }
    };
}

routes! {
    Chat: Post "/v1/chat" => chat::decide;
    ChatStream: Post "/v1/chat/stream" => chat::stream::decide;
    Decisions: Get "/v1/decisions" => decisions::list;
    Decision: Get "/v1/decisions/{id}" => decisions::get;
    ToolInvocations: Get "/v1/tool-invocations" => decisions::tool_invocations;
    Live: Get "/livez" => health::live;
    Ready: Get "/readyz" => health::ready;
    Metrics: Get "/metrics" => health::metrics;
    OpenApi: Get "/openapi.json" => docs::openapi;
    Docs: Get "/docs" => docs::index;
    DocsAsset: Get "/docs/{asset}" => docs::asset;
    Root: Get "/" => docs::root;
}

/// Registers every route, and problems for what is none.
pub(super) fn configure(config: &mut ServiceConfig, state: &Data<State>) {
    config.app_data(state.clone());
    for route in Route::ALL {
        let wrong = move |state: Data<State>, request: HttpRequest| wrong_method(state, request, route);
        config.service(route.resource().default_service(web::to(wrong)));
    }
    config.default_service(web::to(unknown));
}

async fn wrong_method(state: Data<State>, request: HttpRequest, route: Route) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(route));
    exchange.finish(Err(Error::MethodNotAllowed(route.verb().allow())))
}

async fn unknown(state: Data<State>, request: HttpRequest) -> HttpResponse {
    Exchange::begin(&state, &request, None).finish(Err(Error::NoRoute))
}
