//! Ports for servers that tests start as processes, which bind them later. Use it with `mod ports;` (or `#[path]`).

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the kernel's ephemeral ports: one of those could be taken by another process before the server binds it.
const FIRST: u32 = 12_000;
const MANY: u32 = 20_000;

/// The next port of this process; each process starts at another one.
static TAKEN: AtomicU32 = AtomicU32::new(0);

/// An unused port that no other test gets.
pub(crate) fn free_port() -> u16 {
    let begin = std::process::id().wrapping_mul(617);
    for _ in 0..MANY {
        let port = FIRST + begin.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed)) % MANY;
        let port = u16::try_from(port).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port from {FIRST} on is free");
}
