//! The route table: the routes of the API and the pages of the console. The OpenAPI document and the metrics iterate
//! over it, so neither can omit a route. `handlers` says what answers each.

use actix_web::http;

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
    const fn allow(self) -> &'static str {
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

macro_rules! routes {
    (
        api { $($variant:ident: $method:ident $path:literal;)+ }
        pages { $($page:ident: $page_method:ident $page_path:literal;)+ }
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
            pub(super) const fn method(self) -> Method {
                match self { $(Self::$variant => Method::$method,)+ $(Self::$page => Method::$page_method,)+ }
            }
        }
    };
}

routes! {
    api {
        Chat: Post "/v1/chat";
        ChatStream: Post "/v1/chat/stream";
        Decisions: Get "/v1/decisions";
        Decision: Get "/v1/decisions/{id}";
        ToolInvocations: Get "/v1/tool-invocations";
        Agents: Get "/api/projects/{project}/agents";
        Agent: Get "/api/projects/{project}/agents/{agent}";
        PutAgent: Put "/api/projects/{project}/agents/{agent}";
        Versions: Get "/api/projects/{project}/agents/{agent}/versions";
        Version: Get "/api/projects/{project}/agents/{agent}/versions/{version}";
        RestoreVersion: Post "/api/projects/{project}/agents/{agent}/versions/{version}/restore";
        Trigger: Post "/api/projects/{project}/agents/{agent}/trigger";
        Runs: Get "/api/projects/{project}/runs";
        Run: Get "/api/runs/{id}";
        RunEvents: Get "/api/runs/{id}/events";
        CancelRun: Post "/api/runs/{id}/cancel";
        ResumeRun: Post "/api/runs/{id}/resume";
        Say: Post "/api/agent/run";
        SayStream: Post "/api/agent/run/stream";
        Threads: Get "/api/agent/threads";
        Thread: Get "/api/agent/threads/{id}";
        ThreadRun: Get "/api/agent/runs/{id}";
        ThreadRunEvents: Get "/api/agent/runs/{id}/events";
        CancelThreadRun: Post "/api/agent/runs/{id}/cancel";
        PendingApprovals: Get "/api/agent/approvals/pending";
        ResolveApproval: Post "/api/agent/approvals/resolve";
        ActionsInDoubt: Get "/api/agent/actions/in-doubt";
        SettleAction: Post "/api/agent/actions/{id}/settle";
        Grants: Get "/api/agent/grants";
        Grant: Get "/api/agent/grants/{id}";
        RevokeGrant: Delete "/api/agent/grants/{id}";
        StartPlanning: Post "/v1/sessions";
        PlanningSessions: Get "/v1/sessions";
        PlanningSession: Get "/v1/sessions/{id}";
        RefinePlan: Post "/v1/sessions/{id}/refine";
        EditPlan: Put "/v1/sessions/{id}/plan";
        ExecutePlan: Post "/v1/sessions/{id}/execute";
        CancelPlanning: Post "/v1/sessions/{id}/cancel";
        PlanVersions: Get "/v1/sessions/{id}/history";
        PlanVersion: Get "/v1/sessions/{id}/history/{version}";
        PlanTask: Get "/v1/sessions/{id}/tasks/{taskId}";
        PlanningLog: Get "/v1/sessions/{id}/log";
        PlanningEvents: Get "/v1/sessions/{id}/events";
        GoogleCallback: Get "/oauth/google/callback";
        AgentSchema: Get "/schemas/{schema}";
        Live: Get "/livez";
        Ready: Get "/readyz";
        Metrics: Get "/metrics";
        OpenApi: Get "/openapi.json";
        Docs: Get "/docs";
        DocsAsset: Get "/docs/{asset}";
        Root: Get "/";
    }
    pages {
        Console: Get "/console";
        ConsoleStyle: Get "/console/style.css";
        ConsoleLogin: Get "/console/login";
        ConsoleLogIn: Post "/console/login";
        ConsoleLogOut: Post "/console/logout";
        ConsoleZone: Get "/console/zone";
        ConsoleChooseZone: Post "/console/zone";
        ConsoleApprovals: Get "/console/approvals";
        ConsoleApproval: Get "/console/approvals/{id}";
        ConsoleResolve: Post "/console/approvals/{id}";
        ConsoleAnswered: Get "/console/answered";
        ConsoleAction: Get "/console/actions/{id}";
        ConsoleActionHtml: Get "/console/actions/{id}/html";
        ConsoleSettle: Post "/console/actions/{id}";
        ConsoleThreads: Get "/console/threads";
        ConsoleThread: Get "/console/threads/{id}";
        ConsoleSessions: Get "/console/sessions";
        ConsoleSession: Get "/console/sessions/{id}";
        ConsoleSessionNews: Get "/console/sessions/{id}/news";
        ConsoleConfirm: Post "/console/sessions/{id}/confirm";
        ConsoleCancel: Post "/console/sessions/{id}/cancel";
        ConsoleTask: Get "/console/sessions/{id}/tasks/{task}";
        ConsoleSessionLog: Get "/console/sessions/{id}/log";
        ConsoleVersions: Get "/console/sessions/{id}/versions";
        ConsoleGrants: Get "/console/grants";
        ConsoleRevoke: Post "/console/grants/{id}";
    }
}

impl Route {
    /// Whether it answers programs that have a key or a token, unlike pages, health and metrics.
    pub(super) fn is_of_the_api(self) -> bool {
        ["/v1/", "/api/"].iter().any(|prefix| self.path().starts_with(prefix))
    }

    /// All routes of the same path.
    pub(super) fn of_path(self) -> Vec<Self> {
        Self::ALL
            .into_iter()
            .filter(|other| other.path() == self.path())
            .collect()
    }

    /// The value of `Allow`.
    pub(super) fn allow(self) -> String {
        let methods: Vec<_> = self.of_path().iter().map(|route| route.method().allow()).collect();
        methods.join(", ")
    }
}
