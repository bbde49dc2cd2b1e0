//! Ports for servers that tests start as processes, which bind them a while later. Use it with `mod ports;` (or `#[path]`).

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below those that the kernel gives to whoever asks for any: one of these would be somebody's before its process gets to it.
const FIRST: u32 = 12_000;
const MANY: u32 = 20_000;

/// Of this process; each begins elsewhere.
static TAKEN: AtomicU32 = AtomicU32::new(0);

/// A port that nobody has, and that no other test gets.
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
