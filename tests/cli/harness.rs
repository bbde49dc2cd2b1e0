//! A directory to run `gavel` in, the result of a run, and a terminal with a user who types.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::pty::{self, OpenptFlags};
use serde_json::Value;
use tempfile::TempDir;

/// An empty working directory, without the tester's environment.
pub(crate) struct Place {
    pub(crate) directory: TempDir,
}

/// The output and status of an ended process.
pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn command(&self, args: &[&str], environment: &[(&str, &str)]) -> Command {
        self.program(env!("CARGO_BIN_EXE_gavel"), args, environment)
    }

    pub(crate) fn program(&self, program: &str, args: &[&str], environment: &[(&str, &str)]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(self.path())
            .env_clear()
            .stdin(Stdio::null());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.path()).env("TMPDIR", self.path());
        command.env("GAVEL_TRUST", self.path());
        command.envs(environment.iter().copied());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, &[])
    }

    pub(crate) fn run_with(&self, args: &[&str], environment: &[(&str, &str)]) -> Ran {
        Ran::of(self.command(args, environment).output().unwrap())
    }

    /// With `input` on standard input.
    pub(crate) fn pipe(&self, args: &[&str], input: &str) -> Ran {
        let mut command = self.command(args, &[]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        Ran::of(child.wait_with_output().unwrap())
    }
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let ran = Self {
            status: output.status.code().unwrap_or(-1),
            out: text(output.stdout),
            err: text(output.stderr),
        };
        assert!(!ran.err.contains("panicked"), "{}", ran.err);
        ran
    }

    /// Asserts the exit status and returns standard output.
    #[track_caller]
    pub(crate) fn ended(self, status: i32) -> String {
        assert_eq!(self.status, status, "stdout: {}\nstderr: {}", self.out, self.err);
        self.out
    }

    #[track_caller]
    pub(crate) fn json(self) -> Value {
        serde_json::from_str(&self.ended(0)).unwrap()
    }

    /// The objects of a list, one per line, as an array.
    #[track_caller]
    pub(crate) fn rows(self) -> Value {
        let rows = self.ended(0);
        rows.lines()
            .map(|row| serde_json::from_str::<Value>(row).unwrap())
            .collect()
    }
}

/// A process that runs until it is stopped.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    pub(crate) fn start(command: Command) -> Self {
        Self::start_logging(command, Stdio::null())
    }

    /// With its log, which is standard error, written to this file.
    pub(crate) fn start_logging(mut command: Command, log: impl Into<Stdio>) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next line that contains `text`.
    #[track_caller]
    pub(crate) fn line_with(&mut self, text: &str) -> String {
        let found = self
            .lines
            .by_ref()
            .map(|line| line.unwrap())
            .find(|line| line.contains(text));
        found.unwrap_or_else(|| panic!("the process ended without a line that contains {text:?}"))
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) fn stop(self) -> Option<i32> {
        self.reported("-TERM")
    }

    /// Sends the signal and waits for the end.
    pub(crate) fn reported(mut self, signal: &str) -> Option<i32> {
        let reported = Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(reported.success());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail if it has already ended, as it should have.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A terminal with a process in it, and a user who types.
pub(crate) struct Terminal {
    pub(crate) child: Child,
    /// The user's side.
    pub(crate) keys: fs::File,
    pub(crate) screen: mpsc::Receiver<Vec<u8>>,
    /// Output that no check has consumed yet.
    pub(crate) shown: String,
}

impl Terminal {
    /// `gavel ARGS`, controlled by the terminal: Ctrl-C reaches it as from a user.
    pub(crate) fn start(place: &Place, args: &[&str], environment: &[(&str, &str)]) -> Self {
        let keys = pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        pty::grantpt(&keys).unwrap();
        pty::unlockpt(&keys).unwrap();
        let path = pty::ptsname(&keys, Vec::new()).unwrap().into_string().unwrap();
        let side = fs::File::options()
            .read(true)
            .write(true)
            .custom_flags(OpenptFlags::NOCTTY.bits().cast_signed())
            .open(path)
            .unwrap();
        let args = [&["--ctty", env!("CARGO_BIN_EXE_gavel")], args].concat();
        let mut command = place.program("setsid", &args, environment);
        command
            .stdin(side.try_clone().unwrap())
            .stdout(side.try_clone().unwrap())
            .stderr(side);
        let child = command.spawn().unwrap();
        let keys = fs::File::from(keys);
        let (mut reader, (sender, screen)) = (keys.try_clone().unwrap(), mpsc::channel());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // An error: the last process has closed the terminal.
            while let Ok(read @ 1..) = reader.read(&mut bytes)
                && sender.send(bytes[..read].to_vec()).is_ok()
            {}
        });
        Self {
            child,
            keys,
            screen,
            shown: String::new(),
        }
    }

    pub(crate) fn types(&mut self, text: &str) {
        self.keys.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until `text` is shown; consumes and returns what precedes it.
    #[track_caller]
    pub(crate) fn shows(&mut self, text: &str) -> String {
        // A progress line is redrawn for as long as the work lasts, so output alone does not mean that the text will
        // come.
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some((before, after)) = self.shown.split_once(text) {
                let before = before.to_owned();
                self.shown = after.to_owned();
                return before;
            }
            match self.screen.recv_timeout(Duration::from_secs(30)) {
                Ok(_) if Instant::now() > until => {
                    let last: Vec<_> = self.shown.rsplit('\r').take(3).collect();
                    panic!("{text:?} is not shown, but at last {last:?}");
                }
                Ok(bytes) => self.shown.push_str(&String::from_utf8_lossy(&bytes)),
                Err(error) => panic!("{text:?} is not shown ({error}), but {:?}", self.shown),
            }
        }
    }

    #[track_caller]
    pub(crate) fn ends(mut self) -> Option<i32> {
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(30) {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("it does not end, and shows {:?}", self.shown);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Both fail if it has already ended, as it should have.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
