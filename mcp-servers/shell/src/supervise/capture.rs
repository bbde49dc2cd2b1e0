//! The output of a command: its beginning and its end, in little memory however long it is.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};

/// The kept bytes of the beginning.
const HEAD: usize = 16 << 10;
/// The kept bytes of the end.
const TAIL: usize = 112 << 10;

/// One stream.
#[derive(Debug, Default)]
pub(super) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// All bytes.
    pub(super) total: u64,
}

impl Capture {
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (first, rest) = bytes.split_at(bytes.len().min(HEAD - self.head.len()));
        self.head.extend_from_slice(first);
        bytes = &rest[rest.len().saturating_sub(TAIL)..];
        let excess = (self.tail.len() + bytes.len()).saturating_sub(TAIL);
        self.tail.drain(..excess);
        self.tail.extend(bytes);
    }

    /// The text, and whether something was left out. What is not UTF-8, and NUL, becomes U+FFFD.
    pub(super) fn text(&self) -> (String, bool) {
        let (mut head, tail) = (&*self.head, self.tail.iter().copied().collect::<Vec<u8>>());
        let mut tail = &*tail;
        if self.total == (head.len() + tail.len()) as u64 {
            return (readable(&[head, tail].concat()), false);
        }
        head = &head[..head.len() - incomplete_end(head)];
        let continuation = tail.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80);
        tail = &tail[continuation.count()..];
        let gap = self.total - (head.len() + tail.len()) as u64;
        let text = format!("{}\n[{gap} bytes left out]\n{}", readable(head), readable(tail));
        (text, true)
    }
}

/// The bytes of a character at the end that continues behind it.
fn incomplete_end(bytes: &[u8]) -> usize {
    let last = bytes.iter().rev().take(4).position(|byte| byte & 0xc0 != 0x80);
    let Some(back) = last else {
        return 0;
    };
    let needed = match bytes[bytes.len() - 1 - back] {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => 1,
    };
    if back + 1 < needed { back + 1 } else { 0 }
}

fn readable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\0', "\u{fffd}")
}

/// A stream that is read on a thread of its own.
pub(super) type Shared = Arc<Mutex<Capture>>;

/// Reads to the end.
pub(super) fn read(mut stream: impl Read, into: &Shared) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => into
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(parts: &[&[u8]]) -> Capture {
        let mut capture = Capture::default();
        parts.iter().for_each(|part| capture.push(part));
        capture
    }

    #[test]
    fn short_output_is_whole() {
        let capture = of(&[b"a", &[0xff, 0], "ä".as_bytes()]);
        assert_eq!(capture.text(), ("a\u{fffd}\u{fffd}ä".to_owned(), false));
        let exact = vec![b'x'; HEAD + TAIL];
        assert_eq!(of(&[&exact]).text(), ("x".repeat(HEAD + TAIL), false));
    }

    #[test]
    fn long_output_keeps_both_ends_and_names_the_gap() {
        let begin = vec![b'a'; HEAD];
        let end = vec![b'z'; TAIL];
        for chunk in [1000, 70_000, 5_000_000] {
            let mut capture = of(&[&begin]);
            vec![b'-'; 3_000_000].chunks(chunk).for_each(|part| capture.push(part));
            end.chunks(chunk).for_each(|part| capture.push(part));
            let (text, truncated) = capture.text();
            assert!(truncated && capture.tail.len() == TAIL && capture.tail.capacity() < 4 * TAIL);
            let expected = format!("{}\n[3000000 bytes left out]\n{}", "a".repeat(HEAD), "z".repeat(TAIL));
            assert!(text == expected, "chunks of {chunk}");
        }
    }

    #[test]
    fn the_gap_does_not_cut_a_character() {
        let text = "€".repeat(100_000);
        let (shown, truncated) = of(&[text.as_bytes()]).text();
        assert!(truncated && !shown.contains('\u{fffd}'));
        let gap = shown
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(' '))
            .expect("a gap")
            .0;
        let kept = shown.matches('€').count() * 3;
        assert_eq!(gap.parse::<usize>().expect("a number") + kept, text.len());
        assert_eq!(incomplete_end(b"a\xf0\x9f\x98"), 3);
        assert_eq!(incomplete_end("a😀".as_bytes()), 0);
        assert_eq!(incomplete_end(b""), 0);
    }
}
