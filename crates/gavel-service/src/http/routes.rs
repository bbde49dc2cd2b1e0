//! The table of routes: the API and the pages of the console. The OpenAPI document, the metrics and the registration
//! iterate over it, so none of them can omit a route.

use std::sync::LazyLock;

use actix_web::guard::fn_guard;
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse, http};
use utoipa::OpenApi;
use utoipa::openapi::HttpMethod;

use crate::http::caller::Auth;
use crate::http::console::{self, paths};
use crate::http::error::{AgentProblem, Code, Error, Problem};
use crate::http::exchange::Exchange;
use crate::http::openapi::About;
use crate::http::planning::{self, read};
use crate::http::request::{Handler, to};
use crate::http::{State, agents, approvals, chat, decisions, docs, google, health, runs, threads};

/// A route, what answers it, and what follows for its description from its handler's parameters.
pub(super) struct Entry {
    pub(super) route: Route,
    answer: fn(&'static Route) -> actix_web::Route,
    pub(super) describe: fn(&mut About<'_>),
}

macro_rules! routes {
    (
        api { $($module:ident::$handler:ident),+ $(,)? }
        pages { $($method:ident $path:expr => $page:path;)+ }
    ) => {
        static TABLE: LazyLock<Vec<Entry>> = LazyLock::new(|| {
            // Where a route of the API is stands in the description beside its handler.
            let mut table = vec![
                $(pastey::paste! { described::<$module::[<__path_ $handler>], _, _>($module::$handler,
                    |route| to(route, $module::$handler)) },)+
                $(Entry {
                    route: Route { method: Method::$method, path: $path, number: 0 },
                    answer: |route| to(route, $page),
                    describe: |_| (),
                },)+
            ];
            for (number, entry) in table.iter_mut().enumerate() {
                entry.route.number = number;
            }
            table
        });

        /// The operations of the API, as described beside their handlers. The pages are for people.
        #[derive(OpenApi)]
        #[openapi(
            paths($($module::$handler),+),
            components(schemas(Problem, AgentProblem, Code))
        )]
        pub(super) struct Described;
    };
}

routes! {
    api {
        chat::decide,
        chat::decide_streamed,
        decisions::list,
        decisions::get,
        decisions::tool_invocations,
        agents::list,
        agents::get,
        agents::put,
        agents::versions,
        agents::version,
        agents::restore,
        runs::trigger,
        runs::list,
        runs::get,
        runs::follow,
        runs::cancel,
        runs::resume,
        threads::run,
        threads::run_streamed,
        threads::list,
        threads::thread,
        threads::get,
        runs::follow_in_thread,
        threads::cancel,
        approvals::pending,
        approvals::resolve,
        approvals::in_doubt,
        approvals::settle,
        approvals::grants,
        approvals::grant,
        approvals::revoke,
        planning::start,
        read::list,
        read::get,
        planning::refine,
        planning::edit,
        planning::execute,
        planning::cancel,
        read::versions,
        read::version,
        read::task,
        read::log,
        read::follow,
        google::callback,
        agents::schema,
        health::live,
        health::ready,
        health::metrics,
        docs::openapi,
        docs::index,
        docs::asset,
        docs::root,
    }
    pages {
        Get paths::CONSOLE => console::index;
        Get paths::STYLE => console::style;
        Get paths::LOGIN => console::login::show;
        Post paths::LOGIN => console::login::log_in;
        Post paths::LOG_OUT => console::login::log_out;
        Get paths::ZONE => console::zone::show;
        Post paths::ZONE => console::zone::choose;
        Get paths::APPROVALS => console::approvals::list;
        Get "/console/approvals/{id}" => console::approvals::one;
        Post "/console/approvals/{id}" => console::approvals::resolve;
        Get paths::ANSWERED => console::approvals::answered;
        Get "/console/actions/{id}" => console::approvals::action;
        Get "/console/actions/{id}/html" => console::approvals::html;
        Post "/console/actions/{id}" => console::approvals::settle;
        Get paths::THREADS => console::threads::list;
        Get "/console/threads/{id}" => console::threads::thread;
        Get paths::SESSIONS => console::planning::list;
        Get "/console/sessions/{id}" => console::planning::session::show;
        Get "/console/sessions/{id}/news" => console::planning::look;
        Post "/console/sessions/{id}/confirm" => console::planning::confirm;
        Post "/console/sessions/{id}/cancel" => console::planning::cancel;
        Get "/console/sessions/{id}/tasks/{taskId}" => console::planning::task::task;
        Get "/console/sessions/{id}/log" => console::planning::task::log;
        Get "/console/sessions/{id}/versions" => console::planning::versions::show;
        Get paths::GRANTS => console::grants::list;
        Post "/console/grants/{id}" => console::grants::revoke;
    }
}

/// The route of a handler with a description.
fn described<P: utoipa::Path, A: 'static, H: Handler<A>>(
    _: H,
    answer: fn(&'static Route) -> actix_web::Route,
) -> Entry {
    let method = match P::methods().first() {
        Some(HttpMethod::Post) => Method::Post,
        Some(HttpMethod::Put) => Method::Put,
        Some(HttpMethod::Delete) => Method::Delete,
        _ => Method::Get,
    };
    let path = P::path().leak();
    Entry {
        route: Route {
            method,
            path,
            number: 0,
        },
        answer,
        describe: H::describe,
    }
}

/// The whole table.
pub(super) fn table() -> &'static [Entry] {
    &TABLE
}

/// Every route: method, and path with the names of its parameters.
pub fn routes() -> impl Iterator<Item = (&'static str, &'static str)> {
    table().iter().map(|entry| match entry.route.method {
        Method::Get => ("GET", entry.route.path),
        Method::Post => ("POST", entry.route.path),
        Method::Put => ("PUT", entry.route.path),
        Method::Delete => ("DELETE", entry.route.path),
    })
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
            .is_some_and(|other| other.route.number == route.number);
        if !is_first || (is_of_one_command(state) && !route.is_of_the_api()) {
            continue;
        }
        let resource = of_path(route.path).fold(web::resource(route.path), |resource, entry| {
            let method = entry.route.method;
            let admits = fn_guard(move |request| method.admits(&request.head().method));
            resource.route((entry.answer)(&entry.route).guard(admits))
        });
        let invalid = move |state: Data<State>, request: HttpRequest| method_not_allowed(state, request, route);
        config.service(resource.default_service(web::to(invalid)));
    }
    config.default_service(web::to(unknown));
}

async fn method_not_allowed(state: Data<State>, request: HttpRequest, route: &'static Route) -> HttpResponse {
    let allow: Vec<_> = of_path(route.path).map(|entry| entry.route.method.allow()).collect();
    let allow = allow.join(", ");
    if is_of_the_console(&request) {
        return console::method_not_allowed(state, request, route, allow).await;
    }
    let exchange = Exchange::begin(&state, &request, Some(route));
    exchange.finish(Err(Error::MethodNotAllowed(allow)))
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

/// A route of the table.
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    /// Its place in the table.
    pub(super) number: usize,
}

/// A method of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// `GET`, and with it `HEAD`.
    Get,
    /// `POST`.
    Post,
    /// `PUT`.
    Put,
    /// `DELETE`.
    Delete,
}

impl Method {
    /// The methods it adds to `Allow`.
    pub(super) const fn allow(self) -> &'static str {
        match self {
            Self::Get => "GET, HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }

    /// Whether a request with this method is for the route.
    pub(super) fn admits(self, method: &http::Method) -> bool {
        match self {
            Self::Get => *method == http::Method::GET || *method == http::Method::HEAD,
            Self::Post => *method == http::Method::POST,
            Self::Put => *method == http::Method::PUT,
            Self::Delete => *method == http::Method::DELETE,
        }
    }
}

impl Route {
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

    /// A segment for an error text, in double quotes. Valid names are shorter than what it repeats.
    pub(super) fn quoted(&self, name: &str) -> String {
        let short: String = self.get(name).chars().take(80).collect();
        format!("{short:?}")
    }
}
