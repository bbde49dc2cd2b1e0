//! Writes whole numbers in the form that servers accept. A model's `10` may arrive as `10.0`, which is the same number,
//! but strict servers reject it as an integer.

use std::borrow::Cow;

use memchr::memmem;
use serde_json::value::RawValue;

/// The arguments with whole numbers written without a fraction, otherwise unchanged.
pub(super) fn written(arguments: &RawValue) -> Cow<'_, RawValue> {
    let text = arguments.get();
    if memmem::find(text.as_bytes(), b".0").is_none() {
        return Cow::Borrowed(arguments);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    // Outside of strings, a digit begins a number, and a number ends before a comma, a bracket or white space.
    while let Some(at) = rest.find(|c: char| c == '"' || c == '-' || c.is_ascii_digit()) {
        let end = match rest.as_bytes()[at] {
            b'"' => at + string_end(&rest[at..]),
            _ => rest[at..]
                .find([',', ']', '}', ' ', '\n', '\r', '\t'])
                .map_or(rest.len(), |end| at + end),
        };
        let token = &rest[at..end];
        let whole = token
            .split_once('.')
            .filter(|(_, zeros)| zeros.bytes().all(|digit| digit == b'0'));
        out.push_str(&rest[..at]);
        out.push_str(match whole {
            Some((whole, _)) if !token.starts_with('"') => whole,
            _ => token,
        });
        rest = &rest[end..];
    }
    out.push_str(rest);
    RawValue::from_string(out).map_or(Cow::Borrowed(arguments), Cow::Owned)
}

/// The end of the string at the start of `text`, including its closing quote.
fn string_end(text: &str) -> usize {
    let mut at = 1;
    while let Some(found) = memchr::memchr2(b'"', b'\\', &text.as_bytes()[at..]) {
        at += found + 1;
        if text.as_bytes()[at - 1] == b'"' {
            return at;
        }
        at += 1;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn whole_numbers_lose_their_fraction_and_nothing_else_changes() {
        for (arguments, expected) in [
            (r#"{"n":10.0}"#, r#"{"n":10}"#),
            (r#"{"n": -3.000 ,"m":[0.0, 1.50,2.0]}"#, r#"{"n": -3 ,"m":[0, 1.50,2]}"#),
            (
                r#"{"10.0":"10.0","a":"\"1.0","b":"\\","c":1.0}"#,
                r#"{"10.0":"10.0","a":"\"1.0","b":"\\","c":1}"#,
            ),
            (
                r#"{"a":1.0e3,"b":10.05,"c":1e2,"d":true}"#,
                r#"{"a":1.0e3,"b":10.05,"c":1e2,"d":true}"#,
            ),
            (r#"{"ä":"ö.0","n":7.0}"#, r#"{"ä":"ö.0","n":7}"#),
            ("{}", "{}"),
        ] {
            let raw = RawValue::from_string(arguments.to_owned()).unwrap();
            assert_eq!(written(&raw).get(), expected);
        }
    }
}
