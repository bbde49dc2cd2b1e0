//! The lines of streams: unions of objects that differ by `type`. Each object is a schema with a name of its own, and
//! the union has a discriminator, so that generators of clients name and tell them apart.

use serde_json::Value;
use utoipa::ToSchema;
use utoipa::openapi::schema::{AllOfBuilder, Discriminator, OneOfBuilder};
use utoipa::openapi::{Object, Ref, RefOr, Schema};

use crate::http::spelling::camel_name;

/// Schemas by name.
type Named = Vec<(String, RefOr<Schema>)>;

/// A union under construction.
#[derive(Default)]
pub(crate) struct Union {
    /// The value of `type`, and the name of the schema with it.
    tags: Vec<(String, String)>,
    schemas: Named,
}

impl Union {
    /// Adds the lines of a type: an enum that serde tags with `type`, or a struct that has one flattened in it. The
    /// names of their schemas begin with `prefix`, since the same `type` has another shape in another stream.
    pub(crate) fn and<T: ToSchema>(mut self, prefix: &str) -> Self {
        let mut named = Named::new();
        T::schemas(&mut named);
        for line in alternatives(&T::schema(), &mut named) {
            let tag = tag(&line).unwrap_or_else(|| unreachable!("serde tags each line of {}", T::name()));
            let name = format!("{prefix}{}Line", in_camel_case(&tag));
            self.schemas.push((name.clone(), line));
            self.tags.push((tag, name));
        }
        self.schemas.extend(named);
        self
    }

    /// Like [`Self::and`], with the names of members in camelCase, also in the objects that the lines refer to.
    pub(crate) fn and_camel<T: ToSchema>(mut self, prefix: &str) -> Self {
        let snake = Self::default().and::<T>(prefix);
        self.schemas.extend(camel(snake.schemas, &snake.tags, prefix));
        self.tags.extend(snake.tags);
        self
    }

    /// The union as a schema, which refers to its variants.
    pub(crate) fn schema(&self, about: &str) -> RefOr<Schema> {
        let refs = |name: &str| Ref::from_schema_name(name);
        let mapping = self.tags.iter().map(|(tag, name)| (tag, refs(name).ref_location));
        let union = OneOfBuilder::new()
            .description(Some(about.trim()))
            .discriminator(Some(Discriminator::with_mapping("type", mapping)));
        let union = self.tags.iter().fold(union, |union, (_, name)| union.item(refs(name)));
        union.into()
    }

    /// The schemas of its variants, and those that they refer to.
    pub(crate) fn schemas(self, into: &mut Named) {
        into.extend(self.schemas);
    }
}

/// These schemas with camelCase names. One that a line refers to and that changes gets another name, with the prefix.
fn camel(schemas: Named, lines: &[(String, String)], prefix: &str) -> Named {
    let mut schemas: Vec<(String, Value)> = schemas
        .into_iter()
        .map(|(name, schema)| {
            let schema = serde_json::to_value(schema);
            (
                name,
                schema.unwrap_or_else(|error| unreachable!("a schema is JSON: {error}")),
            )
        })
        .collect();
    let mut changed: Vec<String> = Vec::new();
    loop {
        let more = schemas
            .iter()
            .find(|(name, schema)| !changed.contains(name) && renamed(schema.clone(), &changed, prefix) != *schema);
        let Some((name, _)) = more else { break };
        changed.push(name.clone());
    }
    changed.retain(|name| !lines.iter().any(|(_, line)| line == name));
    for (name, schema) in &mut schemas {
        *schema = renamed(schema.take(), &changed, prefix);
        if changed.contains(name) {
            name.insert_str(0, prefix);
        }
    }
    let read = |schema| serde_json::from_value(schema).unwrap_or_else(|error| unreachable!("it was a schema: {error}"));
    schemas.into_iter().map(|(name, schema)| (name, read(schema))).collect()
}

/// A schema as JSON with camelCase members, and with references to the other names of those in `changed`.
fn renamed(schema: Value, changed: &[String], prefix: &str) -> Value {
    match schema {
        Value::Object(members) => {
            let member = |(key, value): (String, Value)| {
                let value = match (&*key, value) {
                    ("properties", Value::Object(of)) => Value::Object(
                        of.into_iter()
                            .map(|(name, value)| (camel_name(&name), renamed(value, changed, prefix)))
                            .collect(),
                    ),
                    ("required", Value::Array(names)) => names
                        .iter()
                        .map(|name| camel_name(name.as_str().unwrap_or_default()))
                        .collect(),
                    ("$ref", Value::String(to)) => {
                        let name = to.rsplit('/').next().unwrap_or_default();
                        match changed.iter().any(|changed| changed == name) {
                            true => Ref::from_schema_name(format!("{prefix}{name}")).ref_location.into(),
                            false => to.into(),
                        }
                    }
                    ("enum", names) => names,
                    (_, value) => renamed(value, changed, prefix),
                };
                (key, value)
            };
            Value::Object(members.into_iter().map(member).collect())
        }
        Value::Array(values) => values
            .into_iter()
            .map(|value| renamed(value, changed, prefix))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => schema,
    }
}

/// The objects that a schema allows. Those that it only combines are taken out of `named`.
fn alternatives(schema: &RefOr<Schema>, named: &mut Named) -> Vec<RefOr<Schema>> {
    match schema {
        RefOr::Ref(to) => {
            let is_named = |name: &str| Ref::from_schema_name(name).ref_location == to.ref_location;
            let at = named.iter().position(|(name, _)| is_named(name));
            let at = at.unwrap_or_else(|| unreachable!("a type names the schemas that it refers to"));
            let (_, schema) = named.swap_remove(at);
            alternatives(&schema, named)
        }
        RefOr::T(Schema::OneOf(union)) => {
            // What is inlined needs no name.
            named.retain(|(_, other)| other != schema);
            let about = union.description.as_deref();
            union.items.iter().map(|line| described(line, about)).collect()
        }
        RefOr::T(Schema::AllOf(parts)) if tag(schema).is_none() => {
            let mut all = vec![RefOr::from(Object::new())];
            for part in &parts.items {
                let part = alternatives(part, named);
                all = all
                    .iter()
                    .flat_map(|one| part.iter().map(|more| joined(one, more)))
                    .collect();
            }
            all
        }
        RefOr::T(_) => vec![schema.clone()],
    }
}

/// An object with the fields of both.
fn joined(one: &RefOr<Schema>, more: &RefOr<Schema>) -> RefOr<Schema> {
    match (one, more) {
        (RefOr::T(Schema::Object(one)), RefOr::T(Schema::Object(more))) => {
            let mut joined = one.clone();
            joined.properties.extend(more.properties.clone());
            joined.required.extend(more.required.clone());
            joined.description = joined.description.or_else(|| more.description.clone());
            joined.into()
        }
        _ => AllOfBuilder::new().item(one.clone()).item(more.clone()).into(),
    }
}

/// A line with a description; an enum of units has one for all.
fn described(line: &RefOr<Schema>, about: Option<&str>) -> RefOr<Schema> {
    let mut line = line.clone();
    if let RefOr::T(Schema::Object(object)) = &mut line {
        object.description = object.description.take().or_else(|| about.map(str::to_owned));
    }
    line
}

/// The value of `type` in a variant, or in the part of it that serde adds.
fn tag(variant: &RefOr<Schema>) -> Option<String> {
    match variant {
        RefOr::T(Schema::Object(Object { properties, .. })) => match properties.get("type")? {
            RefOr::T(Schema::Object(tag)) => Some(tag.enum_values.as_ref()?.first()?.as_str()?.to_owned()),
            _ => None,
        },
        RefOr::T(Schema::AllOf(parts)) => parts.items.iter().find_map(tag),
        _ => None,
    }
}

/// `tool_call` as `ToolCall`.
fn in_camel_case(tag: &str) -> String {
    tag.split('_')
        .flat_map(|word| {
            let mut letters = word.chars();
            let first = letters.next().map(|letter| letter.to_ascii_uppercase());
            first.into_iter().chain(letters)
        })
        .collect()
}

/// Declares a line: a type that stands for a union in the description.
macro_rules! line {
    ($(#[doc = $doc:literal])+ $name:ident = $union:expr) => {
        $(#[doc = $doc])+
        pub(crate) struct $name;

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                $union.schema(concat!($($doc),+))
            }
        }

        impl utoipa::ToSchema for $name {
            fn schemas(schemas: &mut Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::Schema>)>) {
                $union.schemas(schemas);
            }
        }
    };
}
pub(crate) use line;
