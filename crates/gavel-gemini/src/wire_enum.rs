//! Enum values on the wire: names, or numbers on request.

use std::fmt;

use serde::de::{self, Deserializer, Visitor};

/// Makes a provider's enum value safe for logs and labels: at most 100 characters of `[A-Za-z0-9_-]`.
pub(super) fn label(value: &str) -> String {
    value
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
        .take(100)
        .collect()
}

/// Parses an enum value: a name, or a number if the request had `enum-encoding=int`.
pub(super) fn read_enum<'de, D, T>(deserializer: D, name: fn(&str) -> T, number: fn(i64) -> T) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
{
    struct Reader<T>(fn(&str) -> T, fn(i64) -> T);
    impl<T> Visitor<'_> for Reader<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an enum value")
        }
        fn visit_str<E>(self, value: &str) -> Result<T, E> {
            Ok((self.0)(value))
        }
        fn visit_i64<E>(self, value: i64) -> Result<T, E> {
            Ok((self.1)(value))
        }
        fn visit_u64<E: de::Error>(self, value: u64) -> Result<T, E> {
            Ok((self.1)(i64::try_from(value).unwrap_or(i64::MAX)))
        }
    }
    deserializer.deserialize_any(Reader(name, number))
}
