//! What answers each route. A route without a handler does not compile, and the handlers of the API describe it.

use actix_web::guard::fn_guard;
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse, Resource};
use utoipa::OpenApi;

use super::State;
use super::caller::Auth;
use super::error::{AgentProblem, Code, Error, Problem};
use super::exchange::Exchange;
use super::openapi::schemas::Place;
use super::planning::change::CancelBody;
use super::planning::execute::ExecuteBody;
use super::routes::Route;
use super::runs::{InputText, Inputs};
use super::{agents, approvals, chat, console, decisions, docs, google, health, planning, runs, threads};

macro_rules! handlers {
    (
        api { $($variant:ident => $handler:path;)+ }
        pages { $($page:ident => $page_handler:path;)+ }
    ) => {
        /// Adds a route to the resource of its path.
        fn on(route: Route, resource: Resource) -> Resource {
            let method = route.method();
            let guarded = web::route().guard(fn_guard(move |request| method.admits(&request.head().method)));
            match route {
                $(Route::$variant => resource.route(guarded.to($handler)),)+
                $(Route::$page => resource.route(guarded.to($page_handler)),)+
            }
        }

        /// The operations of the API, as described beside their handlers. The pages are for people.
        #[derive(OpenApi)]
        #[openapi(paths($($handler),+), components(schemas(Problem, AgentProblem, Code, Place, Inputs, InputText, CancelBody, ExecuteBody)))]
        struct Described;
    };
}

handlers! {
    api {
        Chat => chat::decide;
        ChatStream => chat::stream::decide;
        Decisions => decisions::list;
        Decision => decisions::get;
        ToolInvocations => decisions::tool_invocations;
        Agents => agents::list;
        Agent => agents::get;
        PutAgent => agents::put;
        Versions => agents::versions;
        Version => agents::version;
        RestoreVersion => agents::restore;
        Trigger => runs::trigger;
        Runs => runs::list;
        Run => runs::get;
        RunEvents => runs::events::follow;
        CancelRun => runs::cancel;
        ResumeRun => runs::resume;
        Say => threads::run;
        SayStream => threads::stream::run;
        Threads => threads::list;
        Thread => threads::thread;
        ThreadRun => threads::get;
        ThreadRunEvents => runs::events::tell_of_thread;
        CancelThreadRun => threads::cancel;
        PendingApprovals => approvals::pending;
        ResolveApproval => approvals::resolve;
        ActionsInDoubt => approvals::in_doubt;
        SettleAction => approvals::settle;
        Grants => approvals::grants;
        Grant => approvals::grant;
        RevokeGrant => approvals::revoke;
        StartPlanning => planning::start;
        PlanningSessions => planning::read::list;
        PlanningSession => planning::read::get;
        RefinePlan => planning::refine;
        EditPlan => planning::change::edit;
        ExecutePlan => planning::execute::execute;
        CancelPlanning => planning::change::cancel;
        PlanVersions => planning::read::versions;
        PlanVersion => planning::read::version;
        PlanTask => planning::work::task;
        PlanningLog => planning::work::log;
        PlanningEvents => planning::events::follow;
        GoogleCallback => google::callback;
        AgentSchema => agents::schema;
        Live => health::live;
        Ready => health::ready;
        Metrics => health::metrics;
        OpenApi => docs::openapi;
        Docs => docs::index;
        DocsAsset => docs::asset;
        Root => docs::root;
    }
    pages {
        Console => console::index;
        ConsoleStyle => console::style;
        ConsoleLogin => console::login::show;
        ConsoleLogIn => console::login::log_in;
        ConsoleLogOut => console::login::log_out;
        ConsoleZone => console::zone::show;
        ConsoleChooseZone => console::zone::choose;
        ConsoleApprovals => console::approvals::list;
        ConsoleApproval => console::approvals::one;
        ConsoleResolve => console::approvals::resolve;
        ConsoleAnswered => console::approvals::answered;
        ConsoleAction => console::approvals::action;
        ConsoleActionHtml => console::approvals::html;
        ConsoleSettle => console::approvals::settle;
        ConsoleThreads => console::threads::list;
        ConsoleThread => console::threads::thread;
        ConsoleSessions => console::planning::list;
        ConsoleSession => console::planning::one::show;
        ConsoleSessionNews => console::planning::news::look;
        ConsoleConfirm => console::planning::change::confirm;
        ConsoleCancel => console::planning::change::cancel;
        ConsoleTask => console::planning::work::task;
        ConsoleSessionLog => console::planning::work::log;
        ConsoleVersions => console::planning::versions::show;
        ConsoleGrants => console::grants::list;
        ConsoleRevoke => console::grants::revoke;
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
            .fold(web::resource(first.path()), |resource, route| on(route, resource));
        let invalid = move |state: Data<State>, request: HttpRequest| method_not_allowed(state, request, first);
        config.service(resource.default_service(web::to(invalid)));
    }
    config.default_service(web::to(unknown));
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
