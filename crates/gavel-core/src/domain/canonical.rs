//! One text for each JSON value: gavel hashes, asks approval for, logs and sends the same bytes.
//!
//! Object keys are sorted by their UTF-8 bytes, no white space is written, and numbers and strings are as `serde_json`
//! prints them. It is idempotent: canonical text that is parsed and written again is unchanged.

use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

/// Hex SHA-256 of a text.
pub fn hash(text: &str) -> Arc<str> {
    hex::encode(Sha256::digest(text)).into()
}

/// Writes `value` canonically: the maps of `serde_json` are sorted.
pub fn to_raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap_or_else(|_| unreachable!("a JSON value prints as JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>()
                .prop_filter("finite", |f| f.is_finite())
                .prop_map(Value::from),
            ".*".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(".*", inner, 0..6).prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn canonical_text_is_a_fixed_point_and_keeps_the_value(value in any_json()) {
            let once = to_raw(&value);
            let read: Value = serde_json::from_str(once.get()).unwrap();
            let twice = to_raw(&read);
            prop_assert_eq!(twice.get(), once.get());
            prop_assert_eq!(read, value);
        }
    }

    #[test]
    fn keys_are_sorted_at_every_depth() {
        let value: Value = serde_json::from_str(r#"{"b":{"z":1,"a":[{"y":1,"x":2}]},"a":null}"#).unwrap();
        assert_eq!(to_raw(&value).get(), r#"{"a":null,"b":{"a":[{"x":2,"y":1}],"z":1}}"#);
    }
}
