//! The possible cost of a check by a schema, estimated before the schema is accepted.
//!
//! A keyword such as `allOf` or `$ref` applies another schema to the same value, that is, in place. The cost for one
//! value is the size of the schema with everything expanded in place. It doubles with each reference that is used
//! twice, and a cycle in place never ends. Costs that depend on the value (its depth, the length of its lists) are
//! counted during the check.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::{Map, Value};

use super::SchemaError;

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
/// The most schemas in one schema that have their own `$id`.
const MOST_RESOURCES: u64 = 64;
/// The address of the published meta-schemas.
const META_SCHEMAS: &str = "json-schema.org/";
/// The cost of a reference to a published meta-schema, which is built into `jsonschema`.
const META_SCHEMA: u64 = 100;

#[derive(Default)]
struct Patterns {
    count: u64,
    bytes: u64,
}

/// Estimates a schema. Returns the total size of its patterns in bytes.
pub(super) fn estimate(schema: &Value) -> Result<u64, SchemaError> {
    let walk = Walk::of(schema);
    walk.within_limits()?;
    walk.in_place()?;
    Ok(walk.patterns.bytes)
}

/// A schema object.
struct Part<'a> {
    /// A JSON pointer.
    place: String,
    schema: &'a Map<String, Value>,
}

struct Walk<'a> {
    /// By address, because references lead to a part more than once.
    parts: HashMap<usize, usize>,
    all: Vec<Part<'a>>,
    /// The whole schema, and the schemas in it that have their own `$id`, each with its `$id`.
    resources: Vec<(&'a str, &'a Value)>,
    /// Schemas by the names that `$anchor` and similar keywords give them.
    anchors: HashMap<&'a str, Vec<usize>>,
    patterns: Patterns,
    pattern_properties: u64,
}

/// Keywords whose value is a schema for parts of a value.
const FOR_PARTS: [&str; 7] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords whose value is a schema for the same value.
const SAME_VALUE: [&str; 4] = ["not", "if", "then", "else"];
/// Keywords whose value is a list of schemas for the same value.
const LISTS_SAME_VALUE: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords whose value is a list of schemas for parts of a value, or one of them.
const LISTS_FOR_PARTS: [&str; 2] = ["items", "prefixItems"];
/// Keywords whose value maps names to schemas for the same value.
const MAPS_SAME_VALUE: [&str; 2] = ["dependentSchemas", "dependencies"];
/// Keywords whose value maps names to schemas for parts of a value, or to schemas that are referred to.
const MAPS: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];
/// References, all of them in place.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

impl<'a> Walk<'a> {
    /// Finds every schema in a schema: wherever the specification allows one, and wherever a reference leads.
    fn of(schema: &'a Value) -> Self {
        let mut walk = Self {
            parts: HashMap::new(),
            all: Vec::new(),
            resources: vec![("", schema)],
            anchors: HashMap::new(),
            patterns: Patterns::default(),
            pattern_properties: 0,
        };
        walk.schema(schema, &mut Vec::new());
        let mut followed = 0;
        while let Some(part) = walk.all.get(followed) {
            followed += 1;
            for target in walk.targets(part.schema) {
                if let Target::Value(target, pointer) = target {
                    walk.schema(target, &mut vec![Cow::Owned(pointer)]);
                }
            }
        }
        walk
    }

    fn schema(&mut self, schema: &'a Value, path: &mut Vec<Cow<'a, str>>) {
        let Value::Object(map) = schema else { return };
        let address = std::ptr::from_ref(map) as usize;
        if self.parts.contains_key(&address) {
            return;
        }
        let part = self.all.len();
        self.parts.insert(address, part);
        let place = place(path);
        self.all.push(Part { place, schema: map });
        self.name(schema, map, part);
        self.count_patterns(map);
        for (key, value) in map {
            path.push(Cow::Borrowed(key));
            let name = key.as_str();
            if MAPS.contains(&name) || MAPS_SAME_VALUE.contains(&name) {
                for (name, schema) in value.as_object().into_iter().flatten() {
                    path.push(Cow::Borrowed(name));
                    self.schema(schema, path);
                    path.pop();
                }
            } else if LISTS_SAME_VALUE.contains(&name) || LISTS_FOR_PARTS.contains(&name) && value.is_array() {
                for (n, schema) in value.as_array().into_iter().flatten().enumerate() {
                    path.push(Cow::Owned(n.to_string()));
                    self.schema(schema, path);
                    path.pop();
                }
            } else if FOR_PARTS.contains(&name) || SAME_VALUE.contains(&name) || LISTS_FOR_PARTS.contains(&name) {
                self.schema(value, path);
            }
            path.pop();
        }
    }

    /// Records the names by which references may refer to a schema.
    fn name(&mut self, schema: &'a Value, map: &'a Map<String, Value>, part: usize) {
        let text = |key: &str| map.get(key).and_then(Value::as_str);
        // Before draft 2019-09 an anchor is an `$id` that begins with `#`.
        for id in [text("$id"), text("id")].into_iter().flatten() {
            match id.strip_prefix('#') {
                Some(anchor) => self.anchors.entry(anchor).or_default().push(part),
                None if part > 0 => self.resources.push((id, schema)),
                None => self.resources[0].0 = id,
            }
        }
        for anchor in [text("$anchor"), text("$dynamicAnchor")].into_iter().flatten() {
            self.anchors.entry(anchor).or_default().push(part);
        }
    }

    fn count_patterns(&mut self, map: &'a Map<String, Value>) {
        let pattern = map.get("pattern").and_then(Value::as_str);
        let names = map.get("patternProperties").and_then(Value::as_object);
        self.pattern_properties += names.map_or(0, Map::len) as u64;
        let names = names.into_iter().flat_map(Map::keys).map(String::as_str);
        for text in names.chain(pattern) {
            self.patterns.count += 1;
            self.patterns.bytes += text.len() as u64;
        }
    }

    fn within_limits(&self) -> Result<(), SchemaError> {
        let counts = [
            (self.patterns.count, "patterns", MOST_PATTERNS),
            (self.patterns.bytes, "bytes of patterns", MOST_PATTERN_BYTES),
            (
                self.pattern_properties,
                "names of `patternProperties`",
                MOST_PATTERN_PROPERTIES,
            ),
            (self.resources.len() as u64, "schemas with an `$id`", MOST_RESOURCES),
        ];
        match counts.into_iter().find(|(count, _, limit)| count > limit) {
            Some((count, what, limit)) => Err(too_costly("", format!("{count} {what}"), limit)),
            None => Ok(()),
        }
    }

    /// Computes the cost of every schema, with everything expanded in place.
    fn in_place(&self) -> Result<(), SchemaError> {
        let mut costs = vec![Cost::Unknown; self.all.len()];
        let mut unevaluated: u64 = 0;
        for part in 0..self.all.len() {
            let Known { cost, depth } = self.cost(part, &mut costs)?;
            let place = &self.all[part].place;
            if cost > MOST_IN_PLACE {
                let what = format!("{cost} schemas for one value, with references in place,");
                return Err(too_costly(place, what, MOST_IN_PLACE));
            }
            if depth > DEEPEST_IN_PLACE {
                let what = format!("a chain of {depth} references and combinations");
                return Err(too_costly(place, what, DEEPEST_IN_PLACE));
            }
            let map = self.all[part].schema;
            if map.contains_key("unevaluatedProperties") || map.contains_key("unevaluatedItems") {
                unevaluated = unevaluated.saturating_add(cost);
            }
            if unevaluated > MOST_UNEVALUATED {
                let what = format!("{unevaluated} schemas under `unevaluated…` keywords");
                return Err(too_costly(place, what, MOST_UNEVALUATED));
            }
        }
        Ok(())
    }

    /// The cost of a part and everything that it applies in place. Iterative, because a chain may span the whole
    /// schema.
    fn cost(&self, part: usize, costs: &mut [Cost]) -> Result<Known, SchemaError> {
        let mut open = vec![part];
        while let Some(&part) = open.last() {
            if matches!(costs[part], Cost::Known(_)) {
                open.pop();
                continue;
            }
            let (children, elsewhere) = self.children(part);
            let mut sum = Known {
                cost: elsewhere + 1,
                depth: 0,
            };
            let mut waits = false;
            for child in children {
                match costs[child] {
                    Cost::Known(known) => {
                        sum.cost = sum.cost.saturating_add(known.cost);
                        sum.depth = sum.depth.max(known.depth);
                    }
                    Cost::Unknown => {
                        open.push(child);
                        waits = true;
                    }
                    // Its cost is still being computed, so it leads back to itself.
                    Cost::Open => {
                        let what = "a cycle of references that never descends into the value".to_owned();
                        return Err(too_costly(&self.all[child].place, what, 0));
                    }
                }
            }
            if waits {
                costs[part] = Cost::Open;
                continue;
            }
            sum.depth += 1;
            costs[part] = Cost::Known(sum);
            open.pop();
        }
        match costs[part] {
            Cost::Known(known) => Ok(known),
            Cost::Unknown | Cost::Open => Ok(Known::default()),
        }
    }

    /// The parts that a part applies in place, and its additional cost.
    fn children(&self, part: usize) -> (Vec<usize>, u64) {
        let schema = self.all[part].schema;
        let mut children: Vec<&'a Value> = Vec::new();
        for (key, value) in schema {
            let name = key.as_str();
            if LISTS_SAME_VALUE.contains(&name) {
                children.extend(value.as_array().into_iter().flatten());
            } else if MAPS_SAME_VALUE.contains(&name) {
                children.extend(value.as_object().into_iter().flat_map(Map::values));
            } else if SAME_VALUE.contains(&name) {
                children.push(value);
            }
        }
        // A list may contain `true` ten thousand times.
        let mut beside = children.len() as u64;
        let mut parts: Vec<usize> = children.into_iter().filter_map(|value| self.part(value)).collect();
        for target in self.targets(schema) {
            match target {
                Target::Value(value, _) => parts.extend(self.part(value)),
                Target::Part(part) => parts.push(part),
                Target::MetaSchema => beside += META_SCHEMA,
            }
        }
        (parts, beside)
    }

    fn part(&self, value: &Value) -> Option<usize> {
        let map = value.as_object()?;
        self.parts.get(&(std::ptr::from_ref(map) as usize)).copied()
    }

    /// The targets of a schema's references. The compiler rejects a reference without a target.
    ///
    /// If a schema embeds others, a reference is followed into each of them: an estimate that is too high does no harm.
    fn targets(&self, map: &Map<String, Value>) -> Vec<Target<'a>> {
        let mut targets = Vec::new();
        for reference in REFERENCES
            .iter()
            .filter_map(|key| map.get(*key).and_then(Value::as_str))
        {
            let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
            if base.contains(META_SCHEMAS) {
                targets.push(Target::MetaSchema);
                if !self.resources.iter().any(|(id, _)| id.contains(META_SCHEMAS)) {
                    continue;
                }
            }
            let decoded = percent_encoding::percent_decode_str(fragment).decode_utf8_lossy();
            match &*decoded {
                "" => targets.extend(
                    self.resources
                        .iter()
                        .map(|(_, root)| Target::Value(root, String::new())),
                ),
                pointer if pointer.starts_with('/') => {
                    let found = self.resources.iter().filter_map(|(_, root)| root.pointer(pointer));
                    targets.extend(found.map(|value| Target::Value(value, pointer[1..].to_owned())));
                }
                anchor => {
                    let parts = self.anchors.get(anchor).into_iter().flatten();
                    targets.extend(parts.map(|part| Target::Part(*part)));
                }
            }
        }
        targets
    }
}

enum Target<'a> {
    /// A schema, and the pointer to it without its first slash.
    Value(&'a Value, String),
    Part(usize),
    MetaSchema,
}

#[derive(Clone, Copy)]
enum Cost {
    Unknown,
    Open,
    Known(Known),
}

#[derive(Clone, Copy, Default)]
struct Known {
    cost: u64,
    depth: u64,
}

fn too_costly(place: &str, what: String, limit: u64) -> SchemaError {
    SchemaError::TooCostly {
        place: place.to_owned(),
        what,
        limit,
    }
}

/// A JSON pointer. Long ones are cut, because people read them in a single line.
fn place(path: &[Cow<'_, str>]) -> String {
    const LONGEST: usize = 200;
    let mut place = String::new();
    for step in path {
        place.push('/');
        place.push_str(&step.replace('~', "~0").replace('/', "~1"));
    }
    crate::domain::text::capped(&place, LONGEST).into_owned()
}
