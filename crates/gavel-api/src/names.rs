//! The API description of what the domain tells of its types: `domain` knows no library of the wire.

use std::borrow::Cow;

use utoipa::openapi::schema::{AdditionalProperties, ArrayBuilder, KnownFormat, OneOfBuilder, SchemaType};
use utoipa::openapi::{ObjectBuilder, Ref, RefOr, Schema, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::domain::names::{About, Shape, Shaped};

/// A `T` of the domain with its description. `#[schema(value_type = …)]` of a field names it by one of the aliases below,
/// since the derive reads no type parameters.
#[derive(Debug, serde::Deserialize)]
#[serde(transparent)]
pub struct Described<T>(pub T);

/// An alias for each named type that is sent, under the name of the type.
macro_rules! described {
    ($($module:ident { $($name:ident),+ })+) => {
        $($(
            #[doc = concat!("Describes [`", stringify!($name), "`](crate::domain::", stringify!($module), "::", stringify!($name), ").")]
            pub type $name = Described<crate::domain::$module::$name>;
        )+)+
    };
}

described! {
    action { ActionStatus, Resolution }
    agent_run { RunStatus, StopReason }
    decision { DecisionType, Outcome, Usage }
    error_class { ErrorClass }
    journal { Phase }
    plan { Change, Draft, Task, TaskReason, TaskStatus }
    planning_session { SessionReason, SessionStatus }
    thread { MessageKind, MessageRole }
    tool { FailureCode }
}

/// Describes types of this module's siblings.
macro_rules! described_here {
    ($($name:ty),+ $(,)?) => {
        $(impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                $crate::names::Described::<Self>::schema()
            }
        }

        impl utoipa::ToSchema for $name {
            fn name() -> std::borrow::Cow<'static, str> {
                $crate::names::Described::<Self>::name()
            }

            fn schemas(schemas: &mut Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::Schema>)>) {
                <$crate::names::Described<Self> as utoipa::ToSchema>::schemas(schemas);
            }
        })+
    };
}
pub(crate) use described_here;

/// A closed list of names of the API with its description.
macro_rules! names {
    ($(#[$($meta:tt)*])* $name:ident { $($names:tt)* }) => {
        $crate::domain::names::names! { $(#[$($meta)*])* $name { $($names)* } }
        $crate::names::described_here!($name);
    };
}
pub(crate) use names;

/// A record of the API with its description.
macro_rules! sent {
    ($(#[$($meta:tt)*])* $name:ident as $shown:literal { $($fields:tt)* }) => {
        $crate::domain::names::record! { $(#[$($meta)*])* $name as $shown { $($fields)* } }
        $crate::names::described_here!($name);
    };
}
pub(crate) use sent;

impl<T: Shaped> PartialSchema for Described<T> {
    fn schema() -> RefOr<Schema> {
        whole(&T::shape())
    }
}

impl<T: Shaped> ToSchema for Described<T> {
    fn name() -> Cow<'static, str> {
        named(&T::shape()).map_or(Cow::Borrowed(""), |about| Cow::Borrowed(about.0))
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        mentioned(&T::shape(), schemas);
    }
}

/// What documents a type that has a name of its own.
fn named(shape: &Shape) -> Option<&'static About> {
    match shape {
        Shape::Names(about, _) | Shape::Record(about, ..) => Some(about),
        _ => None,
    }
}

/// Adds the types of the fields of a record.
fn mentioned(shape: &Shape, schemas: &mut Vec<(String, RefOr<Schema>)>) {
    match shape {
        Shape::Record(_, fields, _) => {
            for field in fields {
                if let Some(about) = named(&field.shape) {
                    schemas.push((about.0.to_owned(), whole(&field.shape)));
                }
                mentioned(&field.shape, schemas);
            }
        }
        Shape::List(of) | Shape::Optional(of) => {
            if let Some(about) = named(of) {
                schemas.push((about.0.to_owned(), whole(of)));
            }
            mentioned(of, schemas);
        }
        _ => {}
    }
}

fn text(lines: &[&str]) -> Option<String> {
    let lines: Vec<_> = lines.iter().map(|line| line.trim()).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// The schema of a type itself.
fn whole(shape: &Shape) -> RefOr<Schema> {
    match shape {
        Shape::Names(about, names) => ObjectBuilder::new()
            .schema_type(Type::String)
            .enum_values(Some(names.iter().copied()))
            .description(text(about.1))
            .into(),
        Shape::Record(about, fields, is_closed) => {
            let mut object = ObjectBuilder::new().description(text(about.1));
            for field in fields {
                object = object.property(&field.name, part(&field.shape, text(field.about)));
                if field.is_required {
                    object = object.required(&field.name);
                }
            }
            let closed = is_closed.then_some(AdditionalProperties::FreeForm(false));
            object.additional_properties(closed).into()
        }
        other => part(other, None),
    }
}

/// The schema of a field, or of an item of a list: a reference to a type that has a name.
#[expect(
    deprecated,
    reason = "the derive writes `example` too, and the document has one form"
)]
fn part(shape: &Shape, about: Option<String>) -> RefOr<Schema> {
    let (shape, is_optional) = match shape {
        Shape::Optional(of) => (&**of, true),
        shape => (shape, false),
    };
    let kind = |kind: Type| match is_optional {
        true => SchemaType::from_iter([kind, Type::Null]),
        false => SchemaType::new(kind),
    };
    match shape {
        Shape::Text(format, example) => ObjectBuilder::new()
            .schema_type(kind(Type::String))
            .format(format.map(|format| SchemaFormat::Custom(format.to_owned())))
            .example(example.map(serde_json::Value::from))
            .description(about)
            .into(),
        Shape::Count(bits, is_unsigned) => ObjectBuilder::new()
            .schema_type(kind(Type::Integer))
            .format(Some(SchemaFormat::KnownFormat(match bits {
                32 => KnownFormat::Int32,
                _ => KnownFormat::Int64,
            })))
            .minimum(is_unsigned.then_some(0))
            .description(about)
            .into(),
        Shape::Number => ObjectBuilder::new()
            .schema_type(kind(Type::Number))
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Double)))
            .description(about)
            .into(),
        Shape::Bool => ObjectBuilder::new()
            .schema_type(kind(Type::Boolean))
            .description(about)
            .into(),
        Shape::Object => ObjectBuilder::new()
            .schema_type(kind(Type::Object))
            .description(about)
            .into(),
        Shape::Any => ObjectBuilder::new()
            .schema_type(SchemaType::AnyValue)
            .description(about)
            .into(),
        Shape::List(of) => ArrayBuilder::new()
            .schema_type(kind(Type::Array))
            .items(part(of, None))
            .description(about)
            .into(),
        Shape::Names(named, _) | Shape::Record(named, ..) => {
            let mut reference = Ref::from_schema_name(named.0);
            reference.description = about.unwrap_or_default();
            match is_optional {
                true => OneOfBuilder::new()
                    .item(reference)
                    .item(ObjectBuilder::new().schema_type(Type::Null))
                    .into(),
                false => RefOr::Ref(reference),
            }
        }
        Shape::Optional(of) => part(of, about),
    }
}
