//! What the model says and the tool returns, and the marks by which a reply is known to be right.

/// The tool that the model calls.
pub(crate) const TOOL: &str = "list_tasks";

/// Stands in the tool's result; the model ends a turn only when it gets this back.
pub(crate) const FOUND: &str = "7f3a-water-the-ferns";

/// Stands in the model's last words; a reply without it is wrong.
pub(crate) const CONFIRMED: &str = "the ferns come first";

/// An opaque signature as the wire has it (base64); it has to come back unchanged.
pub(crate) const SIGNATURE: &str = "EsUDCsIDAdHtim9mZXJucyBhcmUgdGhpcnN0eSBwbGFudHMgYW5kIG5lZWQgd2F0ZXI=";

/// The last words, in the pieces in which a stream delivers them.
pub(crate) const WORDS: [&str; 3] = [
    "You have three open tasks: water the ferns, ",
    "answer the landlord and book the train. As always, ",
    "the ferns come first.",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_confirm_what_is_looked_for() {
        assert!(WORDS.concat().contains(CONFIRMED));
    }
}
