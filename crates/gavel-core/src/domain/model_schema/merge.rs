//! Merges the parts of `allOf` and of a reference into one schema.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// Required names, each once, in their original order.
#[derive(Default)]
pub(super) struct Required {
    pub(super) names: Vec<Value>,
    known: HashSet<Value>,
}

impl Required {
    pub(super) fn add(&mut self, names: Vec<Value>) {
        for name in names {
            if self.known.insert(name.clone()) {
                self.names.push(name);
            }
        }
    }
}

/// Merges `other` into `out`. Properties and required names are united; for all other keywords, the existing value
/// takes precedence.
pub(super) fn merge(out: &mut Map<String, Value>, required: &mut Required, other: Map<String, Value>) {
    for (key, value) in other {
        match (key.as_str(), out.get_mut(&key), value) {
            ("properties", Some(Value::Object(mine)), Value::Object(theirs)) => {
                for (name, schema) in theirs {
                    mine.entry(name).or_insert(schema);
                }
            }
            ("required", _, Value::Array(names)) => required.add(names),
            (_, Some(_), _) => {}
            (_, None, value) => {
                out.insert(key, value);
            }
        }
    }
}
