//! How the service receives stop signals, and ends. It runs on its own thread, since blocked workers handle no signal
//! and end no drain.

use std::io;
use std::process;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;

use crate::cli::interrupt::Signals;

/// How long workers may take to end after a second signal, and how long the last log line may take to be written.
const PATIENCE: Duration = Duration::from_secs(2);
/// The exit status if the stop did not complete.
const NOT_IN_ORDER: i32 = 1;
/// The exit status after a second signal.
const AT_ONCE: i32 = 130;

/// Signals to this process.
#[derive(Clone, Debug)]
pub(super) struct Stopping {
    /// Fires with the first signal.
    pub(super) stop: CancellationToken,
    /// Fires with the second signal.
    pub(super) at_once: CancellationToken,
}

impl Stopping {
    /// Listens from now on. After the first signal the process ends within `limit`, whatever the workers of the runtime
    /// do; after the second signal it ends within [`PATIENCE`]. `under_way` lists what was abandoned then.
    ///
    /// # Errors
    /// The system cannot start a thread or install a signal handler.
    pub(super) fn listen(limit: Duration, under_way: impl Fn() -> String + Send + Sync + 'static) -> io::Result<Self> {
        let stopping = Self {
            stop: CancellationToken::new(),
            at_once: CancellationToken::new(),
        };
        let own = Builder::new_current_thread().enable_all().build()?;
        let signals = {
            let _entered = own.enter();
            Signals::listen()?
        };
        let tokens = stopping.clone();
        // The thread ends with the process.
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            own.block_on(tokens.watch(signals, limit, &under_way));
        })?;
        Ok(stopping)
    }

    async fn watch(&self, mut signals: Signals, limit: Duration, under_way: &(impl Fn() -> String + Sync)) {
        signals.next().await;
        self.stop.cancel();
        tokio::select! {
            () = signals.next() => {
                self.at_once.cancel();
                tokio::time::sleep(PATIENCE).await;
                end("stopped at once", under_way(), AT_ONCE);
            }
            () = tokio::time::sleep(limit) => end("the stop did not end in time", under_way(), NOT_IN_ORDER),
        }
    }
}

/// Ends the process. A thread of its own writes the line: a blocked worker may hold the log, and the reader may have
/// stopped.
fn end(why: &str, abandoned: String, status: i32) {
    let line = format!("{why}; abandoned: {abandoned}. The next start, or another process, closes or continues it");
    let (written, finished) = mpsc::channel();
    let writing = thread::Builder::new().spawn(move || {
        tracing::error!("{line}");
        // Received or not, the process ends.
        written.send(()).ok();
    });
    if writing.is_ok() {
        finished.recv_timeout(PATIENCE).ok();
    }
    process::exit(status);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::{BufRead, BufReader, Lines, Read};
    use std::process::{Child, ChildStdout, Command, Stdio};
    use std::time::Instant;

    use super::*;

    /// Not a test: a service whose workers are all blocked.
    #[test]
    #[ignore = "the process that other tests start and stop"]
    fn child_whose_workers_are_blocked() {
        tracing_subscriber::fmt().with_writer(io::stderr).init();
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let under_way = || "7 runs of agents".to_owned();
        let stopping = Stopping::listen(Duration::from_millis(200), under_way).unwrap();
        let (blocks, blocked) = mpsc::channel();
        for _ in 0..2 {
            let blocks = blocks.clone();
            runtime.spawn(async move {
                blocks.send(()).unwrap();
                loop {
                    thread::park();
                }
            });
        }
        for _ in 0..2 {
            blocked.recv().unwrap();
        }
        println!("blocked");
        runtime.block_on(async {
            stopping.stop.cancelled().await;
            println!("told");
            // Workers also drive the timers.
            tokio::time::sleep(Duration::from_millis(1)).await;
        });
    }

    struct Blocked(Child, Lines<BufReader<ChildStdout>>);

    impl Drop for Blocked {
        fn drop(&mut self) {
            // It has already ended unless the test failed.
            self.0.kill().ok();
        }
    }

    impl Blocked {
        fn start() -> Self {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "cli::stopping::tests::child_whose_workers_are_blocked"])
                .args(["--ignored", "--nocapture"])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let mut started = Self(child, lines);
            started.says("blocked");
            started
        }

        fn says(&mut self, word: &str) {
            assert!(self.1.any(|line| line.unwrap().ends_with(word)), "{word}");
        }

        fn terminate(&self) {
            let stop = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
            assert!(stop.unwrap().success());
        }

        fn ends(mut self) -> (Option<i32>, String) {
            let began = Instant::now();
            let status = self.0.wait().unwrap().code();
            assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
            let mut said = String::new();
            self.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            (status, said)
        }
    }

    #[test]
    fn a_service_whose_workers_are_all_blocked_ends_with_its_drain_and_says_what_it_abandons() {
        let blocked = Blocked::start();
        blocked.terminate();
        let (status, said) = blocked.ends();
        assert_eq!(status, Some(NOT_IN_ORDER), "{said}");
        assert!(
            said.contains("did not end in time; abandoned: 7 runs of agents"),
            "{said}"
        );
    }

    #[test]
    fn a_second_signal_ends_it_at_once() {
        let mut blocked = Blocked::start();
        blocked.terminate();
        blocked.says("told");
        blocked.terminate();
        assert_eq!(blocked.ends().0, Some(AT_ONCE));
    }
}
