//! The route table: the routes of the API, whose handlers describe them, and the pages of the console. The OpenAPI
//! document and the metrics iterate over it, so neither can omit a route.

use actix_web::guard::fn_guard;
use actix_web::http::Method;
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse, Resource};
use utoipa::OpenApi;

use super::State;
use super::caller::Auth;
use super::error::{AgentProblem, Code, Error, Problem};
use super::exchange::Exchange;
use super::openapi::schemas::Place;
use super::runs::{InputText, Inputs};
use super::{agents, approvals, chat, console, decisions, docs, google, health, runs, threads};

/// A method of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// `GET`, and with it `HEAD`.
    Get,
    /// `POST`.
    Post,
    /// `PUT`.
    Put,
    /// `DELETE`.
    Delete,
}

impl Verb {
    /// The methods it adds to `Allow`.
    const fn allow(self) -> &'static str {
        match self {
            Self::Get => "GET, HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }

    fn admits(self, method: &Method) -> bool {
        match self {
            Self::Get => *method == Method::GET || *method == Method::HEAD,
            Self::Post => *method == Method::POST,
            Self::Put => *method == Method::PUT,
            Self::Delete => *method == Method::DELETE,
        }
    }
}

macro_rules! routes {
    (
        api { $($variant:ident: $verb:ident $path:literal => $handler:path;)+ }
        pages { $($page:ident: $page_verb:ident $page_path:literal => $page_handler:path;)+ }
    ) => {
        /// A route.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Route { $($variant,)+ $($page,)+ }

        impl Route {
            /// All routes.
            pub(super) const ALL: [Self; [$(Self::$variant,)+ $(Self::$page),+].len()] =
                [$(Self::$variant,)+ $(Self::$page),+];

            /// Those that are for people, and not part of the API.
            #[cfg(test)]
            pub(super) const PAGES: &'static [Self] = &[$(Self::$page),+];

            /// Its path pattern.
            pub(super) const fn path(self) -> &'static str {
                match self { $(Self::$variant => $path,)+ $(Self::$page => $page_path,)+ }
            }

            /// Its method.
            pub(super) const fn verb(self) -> Verb {
                match self { $(Self::$variant => Verb::$verb,)+ $(Self::$page => Verb::$page_verb,)+ }
            }

            /// Adds the route to the resource of its path.
            fn on(self, resource: Resource) -> Resource {
                let verb = self.verb();
                let route = web::route().guard(fn_guard(move |asked| verb.admits(&asked.head().method)));
                match self {
                    $(Self::$variant => resource.route(route.to($handler)),)+
                    $(Self::$page => resource.route(route.to($page_handler)),)+
                }
            }
        }

        /// The operations of the API, as described beside their handlers. The pages are for people.
        #[derive(OpenApi)]
        #[openapi(paths($($handler),+), components(schemas(Problem, AgentProblem, Code, Place, Inputs, InputText)))]
        struct Described;
    };
}

routes! {
    api {
        Chat: Post "/v1/chat" => chat::decide;
        ChatStream: Post "/v1/chat/stream" => chat::stream::decide;
        Decisions: Get "/v1/decisions" => decisions::list;
        Decision: Get "/v1/decisions/{id}" => decisions::get;
        ToolInvocations: Get "/v1/tool-invocations" => decisions::tool_invocations;
        Agents: Get "/api/projects/{project}/agents" => agents::list;
        Agent: Get "/api/projects/{project}/agents/{agent}" => agents::get;
        PutAgent: Put "/api/projects/{project}/agents/{agent}" => agents::put;
        Versions: Get "/api/projects/{project}/agents/{agent}/versions" => agents::versions;
        Version: Get "/api/projects/{project}/agents/{agent}/versions/{version}" => agents::version;
        RestoreVersion: Post "/api/projects/{project}/agents/{agent}/versions/{version}/restore" => agents::restore;
        Trigger: Post "/api/projects/{project}/agents/{agent}/trigger" => runs::trigger;
        Runs: Get "/api/projects/{project}/runs" => runs::list;
        Run: Get "/api/runs/{id}" => runs::get;
        RunEvents: Get "/api/runs/{id}/events" => runs::events::follow;
        CancelRun: Post "/api/runs/{id}/cancel" => runs::cancel;
        ResumeRun: Post "/api/runs/{id}/resume" => runs::resume;
        Say: Post "/api/agent/run" => threads::run;
        SayStream: Post "/api/agent/run/stream" => threads::stream::run;
        Threads: Get "/api/agent/threads" => threads::list;
        Thread: Get "/api/agent/threads/{id}" => threads::thread;
        ThreadRun: Get "/api/agent/runs/{id}" => threads::get;
        ThreadRunEvents: Get "/api/agent/runs/{id}/events" => runs::events::tell_of_thread;
        CancelThreadRun: Post "/api/agent/runs/{id}/cancel" => threads::cancel;
        PendingApprovals: Get "/api/agent/approvals/pending" => approvals::pending;
        ResolveApproval: Post "/api/agent/approvals/resolve" => approvals::resolve;
        ActionsInDoubt: Get "/api/agent/actions/in-doubt" => approvals::in_doubt;
        SettleAction: Post "/api/agent/actions/{id}/settle" => approvals::settle;
        Grants: Get "/api/agent/grants" => approvals::grants;
        Grant: Get "/api/agent/grants/{id}" => approvals::grant;
        RevokeGrant: Delete "/api/agent/grants/{id}" => approvals::revoke;
        GoogleCallback: Get "/oauth/google/callback" => google::callback;
        AgentSchema: Get "/schemas/{schema}" => agents::schema;
        Live: Get "/livez" => health::live;
        Ready: Get "/readyz" => health::ready;
        Metrics: Get "/metrics" => health::metrics;
        OpenApi: Get "/openapi.json" => docs::openapi;
        Docs: Get "/docs" => docs::index;
        DocsAsset: Get "/docs/{asset}" => docs::asset;
        Root: Get "/" => docs::root;
    }
    pages {
        Console: Get "/console" => console::index;
        ConsoleStyle: Get "/console/style.css" => console::style;
        ConsoleLogin: Get "/console/login" => console::login::show;
        ConsoleLogIn: Post "/console/login" => console::login::log_in;
        ConsoleLogOut: Post "/console/logout" => console::login::log_out;
        ConsoleZone: Get "/console/zone" => console::zone::show;
        ConsoleChooseZone: Post "/console/zone" => console::zone::choose;
        ConsoleNews: Get "/console/news" => console::news::look;
        ConsoleApprovals: Get "/console/approvals" => console::approvals::list;
        ConsoleApproval: Get "/console/approvals/{id}" => console::approvals::one;
        ConsoleResolve: Post "/console/approvals/{id}" => console::approvals::resolve;
        ConsoleSettle: Post "/console/actions/{id}" => console::approvals::settle;
        ConsoleThreads: Get "/console/threads" => console::threads::list;
        ConsoleThread: Get "/console/threads/{id}" => console::threads::thread;
        ConsoleGrants: Get "/console/grants" => console::grants::list;
        ConsoleRevoke: Post "/console/grants/{id}" => console::grants::revoke;
    }
}

/// The operations of the API with their schemas.
pub(super) fn described() -> utoipa::openapi::OpenApi {
    Described::openapi()
}

/// Registers every route, and problems for unknown paths and methods.
pub(super) fn configure(config: &mut ServiceConfig, state: &Data<State>) {
    config.app_data(state.clone());
    for (at, first) in Route::ALL.into_iter().enumerate() {
        // One resource has all methods of its path; it is created at the first of them.
        if Route::ALL[..at].iter().any(|other| other.path() == first.path()) {
            continue;
        }
        if is_of_one_command(state) && !first.is_of_the_api() {
            continue;
        }
        let routes = first.of_path();
        let resource = routes
            .into_iter()
            .fold(web::resource(first.path()), |resource, route| route.on(resource));
        let invalid = move |state: Data<State>, request: HttpRequest| method_not_allowed(state, request, first);
        config.service(resource.default_service(web::to(invalid)));
    }
    config.default_service(web::to(unknown));
}

impl Route {
    /// Whether it answers programs that have a key or a token, unlike pages, health and metrics.
    fn is_of_the_api(self) -> bool {
        ["/v1/", "/api/"].iter().any(|prefix| self.path().starts_with(prefix))
    }

    /// All routes of the same path.
    fn of_path(self) -> Vec<Self> {
        Self::ALL
            .into_iter()
            .filter(|other| other.path() == self.path())
            .collect()
    }

    /// The value of `Allow`.
    pub(super) fn allow(self) -> String {
        let verbs: Vec<_> = self.of_path().iter().map(|route| route.verb().allow()).collect();
        verbs.join(", ")
    }
}

async fn method_not_allowed(state: Data<State>, request: HttpRequest, route: Route) -> HttpResponse {
    if is_of_the_console(&request) {
        return console::method_not_allowed(state, request, route).await;
    }
    let exchange = Exchange::begin(&state, &request, Some(route));
    exchange.finish(Err(Error::MethodNotAllowed(route.allow())))
}

/// Whether the request is for a console page: users open these in a browser, so errors there are pages too.
fn is_of_the_console(request: &HttpRequest) -> bool {
    let below = request.path().strip_prefix(Route::Console.path());
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether the service belongs to one command, which is then the only client that it answers.
fn is_of_one_command(state: &State) -> bool {
    matches!(state.edge.auth, Auth::OneCommand(_))
}

async fn unknown(state: Data<State>, request: HttpRequest) -> HttpResponse {
    if is_of_one_command(&state) {
        let refused = state.edge.auth.caller(&request).await.err();
        return Exchange::begin(&state, &request, None).finish(Err(refused.unwrap_or(Error::NoRoute)));
    }
    if is_of_the_console(&request) {
        return console::unknown(state, request).await;
    }
    Exchange::begin(&state, &request, None).finish(Err(Error::NoRoute))
}
