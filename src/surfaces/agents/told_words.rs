//! Words of a turn that were told as they came, by their length and hash: a reader that is slow keeps none of them.

use sha2::{Digest, Sha256};

#[derive(Default)]
pub(super) struct ToldWords {
    bytes: usize,
    hash: Sha256,
}

impl ToldWords {
    pub(super) fn add(&mut self, text: &str) {
        self.bytes += text.len();
        self.hash.update(text);
    }

    /// Are they what this text begins with?
    pub(super) fn begin(self, text: &str) -> bool {
        let told = text.as_bytes().get(..self.bytes);
        told.is_some_and(|told| Sha256::digest(told) == self.hash.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_were_told_are_known_in_the_turn_that_begins_with_them() {
        let told = |pieces: &[&str]| {
            let mut words = ToldWords::default();
            pieces.iter().for_each(|piece| words.add(piece));
            words
        };
        let turn = "Was soll ich schreiben, Änn?";
        for pieces in [&[][..], &["Was soll ", "ich schreiben"], &[turn]] {
            assert!(told(pieces).begin(turn), "{pieces:?}");
        }
        for other in [&["soll "][..], &[turn, "!"], &["Was soll ich schreiben, xx"]] {
            assert!(!told(other).begin(turn), "{other:?}");
        }
    }
}
