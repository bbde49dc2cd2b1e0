//! The table of routes: the API and the pages of the console. The OpenAPI document, the metrics and the registration
//! iterate over it, so none of them can omit a route.

use std::sync::LazyLock;

use actix_web::guard::fn_guard;
use actix_web::http::Method;
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
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

macro_rules! routes {
    (
        $($tag:literal, $about:literal {
            $($($id:ident = $module:ident::$handler:ident),+: $problems:tt;)+
        })+
        pages { $($method:ident $path:expr => $page:path;)+ }
    ) => {
        /// The groups of operations.
        pub(super) const TAGS: &[(&str, &str)] = &[$(($tag, $about)),+];

        static TABLE: LazyLock<Vec<Entry>> = LazyLock::new(|| {
            use Code::*;
            vec![
                $($($(pastey::paste! { described::<$module::[<__path_ $handler>], _, _>(
                    $module::$handler,
                    |route| to(route, $module::$handler),
                    |describe| Operation { id: stringify!($id), tag: $tag, problems: &$problems, describe },
                ) },)+)+)+
                $(Entry {
                    route: Route { method: Method::$method, path: $path },
                    answer: |route| to(route, $page),
                    operation: None,
                },)+
            ]
        });

        /// The operations of the API, as described beside their handlers.
        #[derive(OpenApi)]
        #[openapi(
            paths($($($($module::$handler),+),+),+),
            components(schemas(Problem, AgentProblem, Code))
        )]
        pub(super) struct Described;
    };
}

routes! {
    "chat", "One message, one decision." {
        decide = chat::decide, decideStreamed = chat::decide_streamed:
            [Forbidden, StillRunning, OutcomeUnrecorded, Internal];
    }
    "agents", "Declared agents: definitions and their versions." {
        listAgents = agents::list: [];
        getAgent = agents::get: [];
        putAgent = agents::put: [];
        listVersions = agents::versions: [];
        getVersion = agents::version: [];
        restoreVersion = agents::restore: [Overloaded];
    }
    "runs", "Runs of agents: trigger, watch, cancel, resume." {
        triggerAgent = runs::trigger: [Forbidden, InvalidDefinition];
        listRuns = runs::list: [];
        getRun = runs::get: [];
        watchRun = runs::follow: [];
        cancelRun = runs::cancel: [Forbidden, OutcomeUnrecorded, RunUnreadable];
        resumeRun = runs::resume:
            [Forbidden, NotPaused, PartOfRun, StepLimitExceeded, DeadlinePassed, CallsInDoubt, TooManySessions];
    }
    "threads", "Stored conversations with an agent that requests approval before it acts." {
        say = threads::run, sayStreaming = threads::run_streamed:
            [Forbidden, NotFound, ThreadBusy, InvalidDefinition, RateLimited, OutcomeUnrecorded, RunUnreadable,
             AgentUnavailable];
        listThreads = threads::list: [];
        getThread = threads::thread: [];
        getThreadRun = threads::get: [];
        watchThreadRun = runs::follow_in_thread: [];
        cancelThreadRun = threads::cancel: [Forbidden, OutcomeUnrecorded, RunUnreadable];
    }
    "approvals", "Approval requests, in-doubt actions and grants." {
        listPendingApprovals = approvals::pending: [Forbidden];
        resolveApproval = approvals::resolve:
            [Forbidden, NotFound, AlreadyResolved, NotGrantable, IdempotencyKeyReused, OutcomeUnrecorded, RunUnreadable];
        listActionsInDoubt = approvals::in_doubt: [Forbidden];
        settleAction = approvals::settle:
            [Forbidden, NotInDoubt, RunInProgress, PartOfRun, IdempotencyKeyReused, OutcomeUnrecorded, RunUnreadable];
        listGrants = approvals::grants: [Forbidden];
        getGrant = approvals::grant: [Forbidden];
        revokeGrant = approvals::revoke: [Forbidden];
    }
    "planning sessions", "A goal, a repository and a deadline: gavel proposes a plan, and changes it in conversation." {
        startPlanning = planning::start: [Forbidden, RepositoryNotAllowed, TooManySessions, AgentUnavailable];
        listPlanningSessions = read::list: [];
        getPlanningSession = read::get: [];
        refinePlan = planning::refine:
            [PlanInProgress, PlanLocked, PlanChanged, SessionOver, DeadlinePassed, TooManySessions, AgentUnavailable];
        editPlan = planning::edit:
            [PlanInProgress, PlanLocked, PlanChanged, SessionOver, DeadlinePassed, OutcomeUnrecorded];
        executePlan = planning::execute:
            [RepositoryNotAllowed, PlanInProgress, PlanChanged, SessionOver, DeadlinePassed, TooManySessions,
             AgentUnavailable];
        cancelPlanning = planning::cancel: [OutcomeUnrecorded];
        listPlanVersions = read::versions: [];
        getPlanVersion = read::version: [];
        getPlanTask = read::task: [];
        listPlanningActions = read::log: [];
        watchPlanningSession = read::follow: [];
    }
    "record", "Decisions and tool calls, for analysts." {
        listDecisions = decisions::list: [];
        getDecision = decisions::get: [];
        listToolInvocations = decisions::tool_invocations: [];
    }
    "health", "For operators and probes. Open: no credentials are required." {
        isAlive = health::live: [];
        isReady = health::ready: [];
        getMetrics = health::metrics: [Internal];
    }
    "accounts", "For browsers that Google redirects. Open: no credentials are required." {
        // The route does not exist if callbacks are disabled.
        finishGoogle = google::callback: [NotFound];
    }
    "reference", "This description. Open: no credentials are required." {
        getAgentSchema = agents::schema: [];
        getOpenApi = docs::openapi: [];
        showDocs = docs::index: [];
        getDocsAsset = docs::asset: [Internal];
        getRoot = docs::root: [];
    }
    pages {
        GET paths::CONSOLE => console::index;
        GET paths::STYLE => console::style;
        GET paths::LOGIN => console::login::show;
        POST paths::LOGIN => console::login::log_in;
        POST paths::LOG_OUT => console::login::log_out;
        GET paths::ZONE => console::zone::show;
        POST paths::ZONE => console::zone::choose;
        GET paths::APPROVALS => console::approvals::list;
        GET "/console/approvals/{id}" => console::approvals::one;
        POST "/console/approvals/{id}" => console::approvals::resolve;
        GET paths::ANSWERED => console::approvals::answered;
        GET "/console/actions/{id}" => console::approvals::action;
        GET "/console/actions/{id}/html" => console::approvals::html;
        POST "/console/actions/{id}" => console::approvals::settle;
        GET paths::THREADS => console::threads::list;
        GET "/console/threads/{id}" => console::threads::thread;
        GET paths::SESSIONS => console::planning::list;
        GET "/console/sessions/{id}" => console::planning::session::show;
        GET "/console/sessions/{id}/news" => console::planning::look;
        POST "/console/sessions/{id}/confirm" => console::planning::confirm;
        POST "/console/sessions/{id}/cancel" => console::planning::cancel;
        GET "/console/sessions/{id}/tasks/{taskId}" => console::planning::task::task;
        GET "/console/sessions/{id}/log" => console::planning::task::log;
        GET "/console/sessions/{id}/versions" => console::planning::versions::show;
        GET paths::GRANTS => console::grants::list;
        POST "/console/grants/{id}" => console::grants::revoke;
    }
}

/// The route of a handler with a description. Where it is stands in the description.
fn described<P: utoipa::Path, A: 'static, H: Handler<A>>(
    _: H,
    answer: fn(&'static Route) -> actix_web::Route,
    operation: fn(fn(&mut About<'_>)) -> Operation,
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
        operation: Some(operation(H::describe)),
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
