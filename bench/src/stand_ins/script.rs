//! The model's texts and the tool's result, and the marks that identify a valid reply.

/// The tool that the model calls.
pub(crate) const TOOL: &str = "list_tasks";

/// Part of the tool's result; the model ends its turn only when it gets this back.
pub(crate) const FOUND: &str = "7f3a-water-the-ferns";

/// Part of the model's final text; a reply without it is invalid.
pub(crate) const CONFIRMED: &str = "the ferns come first";

/// An opaque signature as on the wire (base64); it must come back unchanged.
pub(crate) const SIGNATURE: &str = "EsUDCsIDAdHtim9mZXJucyBhcmUgdGhpcnN0eSBwbGFudHMgYW5kIG5lZWQgd2F0ZXI=";

/// The final text, in the pieces in which a stream delivers it.
pub(crate) const WORDS: [&str; 3] = [
    "You have three open tasks: water the ferns, ",
    "answer the landlord and book the train. As always, ",
    "the ferns come first.",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_final_text_contains_the_confirmation() {
        assert!(WORDS.concat().contains(CONFIRMED));
    }
}
