//! The possible cost of a check by a schema, estimated before the schema is accepted.
//!
//! A keyword such as `allOf` or `$ref` applies another schema to the same value, that is, in place. The cost for one
//! value is the size of the schema with everything expanded in place. It doubles with each reference that is used
//! twice, and a cycle in place never ends. Costs that depend on the value (its depth, the length of its lists) are
//! counted during the check.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::SchemaError;
use crate::domain::argument_path::pointer;
use crate::domain::text::capped;

/// The most schemas that apply to one value, with every reference expanded.
const MOST_IN_PLACE: u64 = 10_000;
/// The longest chain of references and combinations in place. Each link takes stack for each level of a value.
const DEEPEST_IN_PLACE: u64 = 64;
/// The most patterns in one schema.
const MOST_PATTERNS: u64 = 512;
/// The most names in `patternProperties` in one schema. Unlike those of `pattern`, all of them are compiled with the
/// schema.
const MOST_PATTERN_PROPERTIES: u64 = 32;
/// The size limit of all patterns of one schema, in bytes.
const MOST_PATTERN_BYTES: u64 = 64 * 1024;
/// The most in-place schemas that `unevaluatedProperties` and `unevaluatedItems` visit again, over all of these
/// keywords.
const MOST_UNEVALUATED: u64 = 20_000;
/// The address of the published meta-schemas, which are built into `jsonschema`.
const META_SCHEMAS: &str = "json-schema.org/";
/// The cost of a reference to one of them.
const META_SCHEMA: u64 = 100;

/// Keywords that apply schemas to the same value.
const SAME_VALUE: [&str; 9] = [
    "allOf",
    "anyOf",
    "dependencies",
    "dependentSchemas",
    "else",
    "if",
    "not",
    "oneOf",
    "then",
];
/// Keywords that apply schemas to parts of a value, or keep schemas that are referred to.
const PARTS: [&str; 13] = [
    "$defs",
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "definitions",
    "items",
    "patternProperties",
    "prefixItems",
    "properties",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Those of both whose value has schemas by name. The value of the others is a schema, or a list of schemas.
pub(super) const BY_NAME: [&str; 6] = [
    "$defs",
    "definitions",
    "dependencies",
    "dependentSchemas",
    "patternProperties",
    "properties",
];
/// References, all of them in place.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Estimates a schema. Returns the total size of its patterns in bytes.
pub(super) fn estimate(schema: &Value) -> Result<u64, SchemaError> {
    let mut walk = Walk {
        root: schema,
        has_addresses: has_addresses(schema, schema),
        costs: HashMap::new(),
        parts: vec![(String::new(), schema)],
        patterns: 0,
        pattern_bytes: 0,
        pattern_properties: 0,
        unevaluated: 0,
    };
    while let Some((place, schema)) = walk.parts.pop() {
        walk.cost(schema, &place, 0)?;
    }
    Ok(walk.pattern_bytes)
}

struct Walk<'a> {
    root: &'a Value,
    has_addresses: bool,
    /// By address, because references lead to a schema more than once; `None` while it is being computed.
    costs: HashMap<usize, Option<Cost>>,
    /// Schemas for parts of a value, each with its place.
    parts: Vec<(String, &'a Value)>,
    patterns: u64,
    pattern_bytes: u64,
    pattern_properties: u64,
    unevaluated: u64,
}

/// The schemas that apply to one value, and the longest chain of them.
#[derive(Clone, Copy)]
struct Cost {
    schemas: u64,
    depth: u64,
}

impl Cost {
    const ONE: Self = Self { schemas: 1, depth: 0 };

    fn add(&mut self, other: Self) {
        self.schemas = self.schemas.saturating_add(other.schemas);
        self.depth = self.depth.max(other.depth);
    }
}

impl<'a> Walk<'a> {
    /// The cost of a schema with everything that it applies in place; `above` is the length of the chain that leads to
    /// it.
    fn cost(&mut self, schema: &'a Value, place: &str, above: u64) -> Result<Cost, SchemaError> {
        let Value::Object(map) = schema else {
            return Ok(Cost::ONE);
        };
        let address = std::ptr::from_ref(map) as usize;
        match self.costs.get(&address) {
            Some(Some(known)) => return Ok(*known),
            Some(None) => {
                let what = "a cycle of references that never descends into the value";
                return Err(too_costly(place, what.to_owned(), 0));
            }
            // Deeper than the limit, so that a schema that doubles has its own message.
            None if above > 2 * DEEPEST_IN_PLACE => return Err(too_deep(place)),
            None => self.costs.insert(address, None),
        };
        self.count_patterns(map)?;
        let mut cost = Cost::ONE;
        for (key, value) in map {
            if SAME_VALUE.contains(&key.as_str()) {
                for (place, schema) in schemas(place, key, value) {
                    cost.add(self.cost(schema, &place, above + 1)?);
                }
            } else if PARTS.contains(&key.as_str()) {
                self.parts.extend(schemas(place, key, value));
            } else if REFERENCES.contains(&key.as_str())
                && let Some(reference) = value.as_str()
            {
                cost.add(match self.target(reference)? {
                    Some((place, schema)) => self.cost(schema, &place, above + 1)?,
                    None => Cost {
                        schemas: META_SCHEMA,
                        depth: 0,
                    },
                });
            }
        }
        cost.depth += 1;
        if cost.schemas > MOST_IN_PLACE {
            let what = format!("{} schemas for one value, with references in place,", cost.schemas);
            return Err(too_costly(place, what, MOST_IN_PLACE));
        }
        if cost.depth > DEEPEST_IN_PLACE {
            return Err(too_deep(place));
        }
        if map.contains_key("unevaluatedProperties") || map.contains_key("unevaluatedItems") {
            self.unevaluated += cost.schemas;
            within(
                place,
                self.unevaluated,
                "schemas under `unevaluated…` keywords",
                MOST_UNEVALUATED,
            )?;
        }
        self.costs.insert(address, Some(cost));
        Ok(cost)
    }

    fn count_patterns(&mut self, map: &Map<String, Value>) -> Result<(), SchemaError> {
        let pattern = map.get("pattern").and_then(Value::as_str);
        let names = map.get("patternProperties").and_then(Value::as_object);
        self.pattern_properties += names.map_or(0, Map::len) as u64;
        let names = names.into_iter().flat_map(Map::keys).map(String::as_str);
        for text in names.chain(pattern) {
            self.patterns += 1;
            self.pattern_bytes += text.len() as u64;
        }
        within("", self.patterns, "patterns", MOST_PATTERNS)?;
        within("", self.pattern_bytes, "bytes of patterns", MOST_PATTERN_BYTES)?;
        let names = "names of `patternProperties`";
        within("", self.pattern_properties, names, MOST_PATTERN_PROPERTIES)
    }

    /// The schema to which a reference leads, with its place; `None` for a published meta-schema.
    ///
    /// # Errors
    /// It leads elsewhere, or something in the schema may have an address of its own: a reference in it leads to its
    /// own parts.
    fn target(&self, reference: &str) -> Result<Option<(String, &'a Value)>, SchemaError> {
        if self.has_addresses {
            let message = format!("the reference {reference} beside a part with its own `$id` or `$schema`");
            return Err(SchemaError::Invalid(message));
        }
        let own_id = self.root.get("$id").or_else(|| self.root.get("id"));
        if reference.contains(META_SCHEMAS) && own_id.is_none() {
            return Ok(None);
        }
        let pointer = reference.strip_prefix('#').map(percent_encoding::percent_decode_str);
        let pointer = pointer.map(|pointer| pointer.decode_utf8_lossy().into_owned());
        let target = pointer.and_then(|pointer| Some((self.root.pointer(&pointer)?, pointer)));
        match target {
            Some((target, pointer)) => Ok(Some((pointer, target))),
            None => Err(SchemaError::Invalid(format!(
                "the reference {reference} does not point to a part of the schema"
            ))),
        }
    }
}

/// Whether a value in a schema, apart from the schema itself, says that it has an address of its own.
fn has_addresses(value: &Value, root: &Value) -> bool {
    match value {
        Value::Object(map) => {
            let is_root = std::ptr::eq(value, root);
            let names = |key: &str| map.get(key).is_some_and(Value::is_string);
            let has_own = !is_root && (names("$id") || names("$schema") || names("id") && is_draft_4(root));
            has_own || map.values().any(|value| has_addresses(value, root))
        }
        Value::Array(items) => items.iter().any(|value| has_addresses(value, root)),
        _ => false,
    }
}

/// In draft 4, `$id` was called `id`.
fn is_draft_4(root: &Value) -> bool {
    let draft = root.get("$schema").and_then(Value::as_str);
    draft.is_some_and(|draft| draft.contains("draft-04"))
}

/// The schemas in the value of a keyword, each with its place.
fn schemas<'a>(place: &str, key: &str, value: &'a Value) -> Vec<(String, &'a Value)> {
    match value {
        Value::Object(named) if BY_NAME.contains(&key) => {
            let (place, named) = (format!("{place}/{key}"), named.iter());
            named.map(|(name, schema)| (pointer(&place, name), schema)).collect()
        }
        Value::Array(list) => {
            let list = list.iter().enumerate();
            list.map(|(n, schema)| (format!("{place}/{key}/{n}"), schema)).collect()
        }
        schema => vec![(format!("{place}/{key}"), schema)],
    }
}

fn within(place: &str, count: u64, what: &str, limit: u64) -> Result<(), SchemaError> {
    match count > limit {
        true => Err(too_costly(place, format!("{count} {what}"), limit)),
        false => Ok(()),
    }
}

fn too_deep(place: &str) -> SchemaError {
    let what = "a longer chain of references and combinations".to_owned();
    too_costly(place, what, DEEPEST_IN_PLACE)
}

/// Long places are cut, because people read them in a single line.
fn too_costly(place: &str, what: String, limit: u64) -> SchemaError {
    SchemaError::TooCostly {
        place: capped(place, 200).into_owned(),
        what,
        limit,
    }
}
