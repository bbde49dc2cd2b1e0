//! A gavel that a test started, and its end.

use std::fs;
use std::process::{Child, Command};

/// A running gavel. It ends with this.
pub struct Gavel {
    pub child: Child,
    pub url: String,
}

impl Drop for Gavel {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Gavel {
    /// As a crash would, together with its servers.
    pub fn kill(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return;
        }
        let mut processes = children(self.child.id());
        processes.insert(0, self.child.id());
        for process in processes {
            // One that has ended meanwhile is no error.
            let _ = Command::new("kill").args(["-KILL", &process.to_string()]).output();
        }
        let _ = self.child.wait();
    }

    /// As an operator would stop it.
    pub fn stop(mut self) {
        let stopped = Command::new("kill")
            .args(["-TERM", &self.child.id().to_string()])
            .status();
        assert!(stopped.unwrap().success());
        self.child.wait().unwrap();
    }
}

fn children(process: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let every = fs::read_dir(format!("/proc/{process}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let of_threads = every.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let all: Vec<String> = of_threads.chain(text.ok()).collect();
    all.iter()
        .flat_map(|text| text.split_whitespace())
        .filter_map(|id| id.parse().ok())
        .collect()
}
