//! The program, and a client of it.

#[path = "../../../base/tests/shared/mod.rs"]
mod shared;

use std::collections::HashMap;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, RequestMetaObject, ServerResult};
use rmcp::service::{PeerRequestOptions, RequestHandle, RunningService, ServiceError};
use rmcp::transport::TokioChildProcess;
use rmcp::{RoleClient, ServiceExt};
use serde_json::{Value, json};
pub(crate) use shared::Reply;
use tempfile::TempDir;
use tokio::process::Command;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_gavel-mcp-shell");

/// Whether the tests run as root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Fails the test if everything has to be there; says otherwise that it is not checked.
pub(crate) fn not_checked(what: &str) {
    assert!(!is_root() && std::env::var_os("CI").is_none(), "not checked: {what}");
    eprintln!("\n*** NOT CHECKED: {what} ***\n");
}

/// Where the program is started, and how.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) level: &'static str,
    pub(crate) directory: Arc<TempDir>,
    pub(crate) environment: HashMap<&'static str, String>,
    /// Not that of the tests.
    user: Option<u32>,
}

impl World {
    pub(crate) fn at(level: &'static str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("permissions");
        let world = Self {
            level,
            directory: Arc::new(directory),
            environment: HashMap::new(),
            user: None,
        };
        let root = world.root().display().to_string();
        world.set("SHELL_SANDBOX", level).set("SHELL_ROOT", &root)
    }

    pub(crate) fn set(mut self, name: &'static str, value: &str) -> Self {
        self.environment.insert(name, value.to_owned());
        self
    }

    /// The program does not run as root, even if the tests do. Its user has no other processes: the limit of processes
    /// would count them.
    pub(crate) fn unprivileged(mut self) -> Self {
        static NEXT_USER: AtomicU32 = AtomicU32::new(54_321);
        if is_root() {
            let user = NEXT_USER.fetch_add(1, Ordering::Relaxed);
            std::os::unix::fs::chown(self.directory.path(), Some(user), Some(user)).expect("an owner");
            // The program's own directory may be closed to others.
            fs::copy(PROGRAM, self.directory.path().join("program")).expect("a copy");
            self.user = Some(user);
        }
        self
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    /// The program, without anything from this process's environment that could affect it.
    pub(crate) fn program(&self) -> Command {
        let mut command = match self.user {
            None => Command::new(PROGRAM),
            Some(user) => {
                let mut command = Command::new(self.directory.path().join("program"));
                command.uid(user).gid(user);
                command
            }
        };
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("RUST_LOG", "info,rmcp=warn");
        command.envs(&self.environment).current_dir("/").kill_on_drop(true);
        command
    }

    /// What the program logs.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    /// The server. `None` if the level does not work here, which then is not checked.
    pub(crate) async fn server(&self) -> Option<Server> {
        let log = File::options()
            .append(true)
            .create(true)
            .open(self.log_path())
            .expect("a log");
        let builder = TokioChildProcess::builder(self.program()).stderr(Stdio::from(log));
        let (child, _) = builder.spawn().expect("the program starts");
        let process = child.id().expect("a process");
        let Ok(client) = ().serve(child).await else {
            not_checked(&format!("{}: {}", self.level, self.log()));
            return None;
        };
        let tools = client.list_all_tools().await.expect("tools/list");
        let schema = tools[0].output_schema.as_ref().expect("an output schema");
        let schema = Value::Object((**schema).clone());
        Some(Server {
            client,
            process: i32::try_from(process).expect("an id"),
            output: jsonschema::validator_for(&schema).expect("a JSON Schema"),
            _directory: self.directory.clone(),
        })
    }
}

pub(crate) struct Server {
    pub(crate) client: RunningService<RoleClient, ()>,
    pub(crate) process: i32,
    output: jsonschema::Validator,
    /// The server's files are there as long as the server.
    _directory: Arc<TempDir>,
}

/// The standard output of a result.
pub(crate) fn stdout(result: &Value) -> &str {
    result["stdout"].as_str().expect("a text")
}

impl Server {
    /// The result of a command that has one.
    pub(crate) async fn run(&self, command: &str) -> Value {
        self.call(json!({ "command": command }), json!({})).await.ok()
    }

    /// The same in a session.
    pub(crate) async fn run_in(&self, session: &str, command: &str) -> Value {
        let meta = json!({ "gavel/session_id": session });
        self.call(json!({ "command": command }), meta).await.ok()
    }

    /// The same with a key.
    pub(crate) async fn keyed(&self, key: &str, command: &str) -> Reply {
        let meta = json!({ "gavel/session_id": "s", "gavel/idempotency_key": key });
        self.call(json!({ "command": command }), meta).await
    }

    pub(crate) async fn call(&self, arguments: Value, meta: Value) -> Reply {
        let handle = self.begin(arguments, meta).await;
        self.end(handle).await.expect("the protocol works")
    }

    /// A call that has not ended yet.
    pub(crate) async fn begin(&self, arguments: Value, meta: Value) -> RequestHandle<RoleClient> {
        let mut call = CallToolRequestParams::new("run_shell_command");
        call.arguments = arguments.as_object().cloned();
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(call));
        let mut given = RequestMetaObject::new();
        given.0.0.extend(meta.as_object().expect("an object").clone());
        let options = PeerRequestOptions::no_options().with_meta(given);
        self.client
            .peer()
            .send_cancellable_request(request, options)
            .await
            .expect("it is sent")
    }

    /// Checks the properties of every answer: its text equals its structure, and it matches the output schema.
    pub(crate) async fn end(&self, handle: RequestHandle<RoleClient>) -> Result<Reply, ServiceError> {
        let ServerResult::CallToolResult(result) = handle.await_response().await? else {
            panic!("not a tool result");
        };
        let body = result.structured_content.expect("structured content");
        let text = &result.content[0].as_text().expect("a text").text;
        assert_eq!(serde_json::from_str::<Value>(text).expect("JSON"), body);
        if let Err(error) = self.output.validate(&body) {
            panic!("off its schema: {error}: {body}");
        }
        Ok(Reply {
            is_error: result.is_error.unwrap_or_default(),
            body,
        })
    }
}

/// The only session's working directory, and its owner.
pub(crate) fn work(root: &Path) -> (PathBuf, u32) {
    use std::os::unix::fs::MetadataExt;
    let sessions = fs::read_dir(root.join("sessions")).expect("sessions").flatten();
    let mut works: Vec<_> = sessions
        .map(|entry| entry.path().join("work"))
        .filter(|path| path.is_dir())
        .collect();
    works.sort_by_key(|path| fs::metadata(path).and_then(|found| found.modified()).ok());
    let path = works.pop().expect("a session");
    let owner = fs::metadata(&path).expect("a directory").uid();
    (path, owner)
}
