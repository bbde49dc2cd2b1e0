//! The table of routes: the API and the pages of the console. The OpenAPI document, the metrics and the registration
//! iterate over it, so none of them can omit a route.

use std::sync::LazyLock;

use actix_web::guard::fn_guard;
use actix_web::http::Method;
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use utoipa::OpenApi as _;
use utoipa::openapi::{HttpMethod, OpenApi};

use crate::http::caller::Auth;
use crate::http::console::{self, paths};
use crate::http::error::{AgentProblem, Code, Error, Problem};
use crate::http::exchange::Exchange;
use crate::http::openapi::About;
use crate::http::planning::{self, read};
use crate::http::request::Handler;
use crate::http::{State, agents, approvals, chat, decisions, docs, exports, google, health, runs, stats, threads};

/// A route, and what answers it.
pub(super) struct Entry {
    pub(super) route: Route,
    answer: fn(&'static Route) -> actix_web::Route,
    /// Absent for a page, which is for people.
    pub(super) operation: Option<Operation>,
}

/// What the API description has of a route, beside what its handler's comment and `#[utoipa::path]` say.
pub(super) struct Operation {
    pub(super) id: &'static str,
    pub(super) tag: &'static str,
    /// The problems that do not follow from what the handler takes and answers.
    pub(super) problems: &'static [Code],
    /// Adds what follows from what the handler takes and answers.
    pub(super) describe: fn(&mut About<'_>),
}

/// The operations of a module.
pub(crate) struct Operations {
    entries: fn(&'static str) -> Vec<Entry>,
    described: fn() -> OpenApi,
}

/// The operations of a module, beside their handlers. A line: the operation and what answers it, and the problems that do not
/// follow from what the handler takes and answers.
macro_rules! operations {
    ($($($id:ident = $handler:ident),+: $problems:tt;)+) => {
        /// The operations of this module.
        pub(crate) const OPERATIONS: $crate::http::routes::Operations = pastey::paste! {{
            #[derive(utoipa::OpenApi)]
            #[openapi(paths($($($handler),+),+))]
            struct Described;

            #[allow(unused_imports, reason = "most routes have no such problem")]
            use $crate::http::error::Code::*;
            $crate::http::routes::Operations::new::<Described>(|tag| vec![$($(
                $crate::http::routes::described::<[<__path_ $handler>], _, _>(
                    $handler,
                    |route| $crate::http::request::to(route, $handler),
                    tag,
                    stringify!($id),
                    &$problems,
                ),
            )+)+])
        }};
    };
}
pub(crate) use operations;

impl Operations {
    pub(super) const fn new<D: utoipa::OpenApi>(entries: fn(&'static str) -> Vec<Entry>) -> Self {
        Self {
            entries,
            described: D::openapi,
        }
    }
}

/// The groups of operations: what each is about, and the modules that have its routes.
const GROUPS: &[(&str, &str, &[Operations])] = &[
    ("chat", "One message, one decision.", &[chat::OPERATIONS]),
    (
        "agents",
        "Declared agents: definitions and their versions.",
        &[agents::OPERATIONS],
    ),
    (
        "runs",
        "Runs of agents: trigger, watch, cancel, resume.",
        &[runs::OPERATIONS],
    ),
    (
        "threads",
        "Stored conversations with an agent that requests approval before it acts.",
        &[threads::OPERATIONS],
    ),
    (
        "approvals",
        "Approval requests, in-doubt actions and grants.",
        &[approvals::OPERATIONS],
    ),
    (
        "planning sessions",
        "A goal, a repository and a deadline: gavel proposes a plan, and changes it in conversation.",
        &[planning::OPERATIONS, read::OPERATIONS],
    ),
    (
        "record",
        "Decisions and tool calls, and statistics of them, for analysts.",
        &[decisions::OPERATIONS, stats::OPERATIONS, exports::OPERATIONS],
    ),
    (
        "health",
        "For operators and probes. Open: no credentials are required.",
        &[health::OPERATIONS],
    ),
    (
        "accounts",
        "For browsers that Google redirects. Open: no credentials are required.",
        &[google::OPERATIONS],
    ),
    (
        "reference",
        "This description. Open: no credentials are required.",
        &[docs::OPERATIONS],
    ),
];

static TABLE: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let of_api = GROUPS
        .iter()
        .flat_map(|(tag, _, modules)| modules.iter().flat_map(|module| (module.entries)(tag)));
    of_api.chain(console::pages()).collect()
});

/// The schemas that every operation refers to.
#[derive(utoipa::OpenApi)]
#[openapi(components(schemas(Problem, AgentProblem, Code)))]
struct Problems;

/// The operations as their handlers describe them.
pub(super) fn description() -> OpenApi {
    let modules = GROUPS.iter().flat_map(|(_, _, modules)| *modules);
    modules.fold(Problems::openapi(), |mut all, module| {
        all.merge((module.described)());
        all
    })
}

/// The groups of operations, and what each is about.
pub(super) fn tags() -> impl Iterator<Item = (&'static str, &'static str)> {
    GROUPS.iter().map(|(tag, about, _)| (*tag, *about))
}

/// The route of a handler with a description. Where it is stands in the description.
pub(super) fn described<P: utoipa::Path, A: 'static, H: Handler<A>>(
    _: H,
    answer: fn(&'static Route) -> actix_web::Route,
    tag: &'static str,
    id: &'static str,
    problems: &'static [Code],
) -> Entry {
    let method = match P::methods().first() {
        Some(HttpMethod::Post) => Method::POST,
        Some(HttpMethod::Put) => Method::PUT,
        Some(HttpMethod::Delete) => Method::DELETE,
        _ => Method::GET,
    };
    let path = P::path().leak();
    Entry {
        route: Route { method, path },
        answer,
        operation: Some(Operation {
            id,
            tag,
            problems,
            describe: H::describe,
        }),
    }
}

impl Entry {
    /// A page of the console.
    pub(super) fn page(method: Method, path: &'static str, answer: fn(&'static Route) -> actix_web::Route) -> Self {
        Self {
            route: Route { method, path },
            answer,
            operation: None,
        }
    }
}

/// The whole table.
pub(super) fn table() -> &'static [Entry] {
    &TABLE
}

/// Every route: method, and path with the names of its parameters.
pub fn routes() -> impl Iterator<Item = (&'static str, &'static str)> {
    table()
        .iter()
        .map(|entry| (entry.route.method.as_str(), entry.route.path))
}

/// All routes of the same path.
fn of_path(path: &str) -> impl Iterator<Item = &'static Entry> {
    table().iter().filter(move |entry| entry.route.path == path)
}

/// Registers every route, and problems for unknown paths and methods.
pub(super) fn configure(config: &mut ServiceConfig, state: &Data<State>) {
    config.app_data(state.clone());
    for first in table() {
        let route = &first.route;
        // One resource has all methods of its path; it is created at the first of them.
        let is_first = of_path(route.path)
            .next()
            .is_some_and(|other| std::ptr::eq(other, first));
        if !is_first || (is_of_one_command(state) && !route.is_of_the_api()) {
            continue;
        }
        let resource = of_path(route.path).fold(web::resource(route.path), |resource, entry| {
            let admits = fn_guard(|request| entry.route.admits(&request.head().method));
            resource.route((entry.answer)(&entry.route).guard(admits))
        });
        let invalid = move |state: Data<State>, request: HttpRequest| method_not_allowed(state, request, route);
        config.service(resource.default_service(web::to(invalid)));
    }
    config.default_service(web::to(unknown));
}

async fn method_not_allowed(state: Data<State>, request: HttpRequest, route: &'static Route) -> HttpResponse {
    let allow = of_path(route.path).map(|entry| match &entry.route.method {
        &Method::GET => "GET, HEAD",
        other => other.as_str(),
    });
    let allow = allow.collect::<Vec<_>>().join(", ");
    reject(&state, &request, Some(route), Error::method_not_allowed(&allow)).await
}

async fn unknown(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let refused = match is_of_one_command(&state) {
        true => state.edge.auth.caller(&request).await.err(),
        false => None,
    };
    reject(&state, &request, None, refused.unwrap_or_else(Error::no_route)).await
}

async fn reject(
    state: &Data<State>,
    request: &HttpRequest,
    route: Option<&'static Route>,
    error: Error,
) -> HttpResponse {
    let exchange = Exchange::begin(state, request, route);
    exchange.finish(match is_of_the_console(request) && !is_of_one_command(state) {
        true => Ok(console::reason(state, request, error.into()).await),
        false => Err(error),
    })
}

/// Whether the request is for a console page: users open these in a browser, so errors there are pages too.
fn is_of_the_console(request: &HttpRequest) -> bool {
    let below = request.path().strip_prefix(paths::CONSOLE);
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether the service belongs to one command, which is then the only client that it answers.
fn is_of_one_command(state: &State) -> bool {
    matches!(state.edge.auth, Auth::OneCommand(_))
}

/// A route of the table.
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
}

impl Route {
    /// Whether a request with this method is for it. `HEAD` is answered as `GET`.
    fn admits(&self, method: &Method) -> bool {
        self.method == *method || (self.method == Method::GET && *method == Method::HEAD)
    }

    /// Whether it answers programs that have a key or a token, unlike pages, health and metrics.
    pub(super) fn is_of_the_api(&self) -> bool {
        ["/v1/", "/api/"].iter().any(|prefix| self.path.starts_with(prefix))
    }

    /// Whether it is asked so often that its requests would drown the others in traces.
    pub(super) fn is_probe(&self) -> bool {
        ["/livez", "/readyz", "/metrics"].contains(&self.path)
    }
}

/// The segments of a path by their names.
pub(super) struct Path<'a>(pub(super) &'a HttpRequest);

impl Path<'_> {
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.match_info().get(name).unwrap_or_default()
    }

    /// An error text with segments in place of their names in braces, each in double quotes. Valid segments are shorter
    /// than what it repeats.
    pub(super) fn fill(&self, template: &str) -> String {
        let fill = |(n, part): (usize, &str)| match n % 2 {
            0 => part.to_owned(),
            _ => format!("{:?}", self.get(part).chars().take(80).collect::<String>()),
        };
        template.split(['{', '}']).enumerate().map(fill).collect()
    }
}
