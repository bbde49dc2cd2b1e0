//! Points in time.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;

/// A point in time: microseconds since 1970 in the store, RFC 3339 in UTC in answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub i64);

impl Moment {
    /// The current time.
    pub fn now() -> Self {
        Self(Utc::now().timestamp_micros())
    }

    /// Parses RFC 3339.
    pub fn parse(text: &str) -> Option<Self> {
        let moment = DateTime::parse_from_rfc3339(text).ok()?;
        Some(Self(moment.timestamp_micros()))
    }

    /// RFC 3339, in whole seconds.
    pub fn text(self) -> String {
        let moment = DateTime::<Utc>::from_timestamp_micros(self.0).unwrap_or_default();
        moment.to_rfc3339_opts(SecondsFormat::Secs, true)
    }
}

impl schemars::JsonSchema for Moment {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Moment".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        String::json_schema(generator)
    }
}

impl Serialize for Moment {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}
