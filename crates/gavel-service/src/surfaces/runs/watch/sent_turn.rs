//! The text of a turn that a reader has already received, as length and hash, so that a slow reader keeps no text.

use sha2::{Digest, Sha256};

use crate::domain::journal::{ModelTurn, Part};

/// Text and thoughts of one turn.
#[derive(Default)]
pub(super) struct SentTurn {
    words: Beginning,
    thoughts: Beginning,
}

#[derive(Default)]
struct Beginning {
    bytes: usize,
    hash: Sha256,
}

impl SentTurn {
    pub(super) fn add(&mut self, words: &str) {
        self.words.add(words);
    }

    pub(super) fn add_thought(&mut self, text: &str) {
        self.thoughts.add(text);
    }

    /// Does the turn begin with the received text?
    pub(super) fn begin(self, turn: &ModelTurn) -> bool {
        let thoughts = turn.parts.iter().filter_map(|part| match part {
            Part::Thought(text) => Some(text.as_str()),
            Part::Text(_) | Part::Call(_) | Part::Other => None,
        });
        self.words.begin(&turn.text()) && self.thoughts.begin(&thoughts.collect::<String>())
    }
}

impl Beginning {
    fn add(&mut self, text: &str) {
        self.bytes += text.len();
        self.hash.update(text);
    }

    fn begin(self, text: &str) -> bool {
        let reported = text.as_bytes().get(..self.bytes);
        reported.is_some_and(|reported| Sha256::digest(reported) == self.hash.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sent_text_is_recognized_in_a_text_that_begins_with_it() {
        let reported = |pieces: &[&str]| {
            let mut words = Beginning::default();
            pieces.iter().for_each(|piece| words.add(piece));
            words
        };
        let turn = "Was soll ich schreiben, Änn?";
        for pieces in [&[][..], &["Was soll ", "ich schreiben"], &[turn]] {
            assert!(reported(pieces).begin(turn), "{pieces:?}");
        }
        for other in [&["soll "][..], &[turn, "!"], &["Was soll ich schreiben, xx"]] {
            assert!(!reported(other).begin(turn), "{other:?}");
        }
    }
}
