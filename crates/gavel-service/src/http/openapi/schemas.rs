//! Schemas that belong to no route: parts of a problem, pages of lists, documents.

use serde_json::Value;
use utoipa::openapi::schema::{AdditionalProperties, AllOf, AnyOf, ArrayItems, OneOf, SchemaType};
use utoipa::openapi::{Object, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::http::error::code::Code;

/// States that objects without described fields have any fields, which generators of TypeScript clients would
/// otherwise refuse.
pub(super) fn open(schema: &mut RefOr<Schema>) {
    let RefOr::T(schema) = schema else { return };
    match schema {
        Schema::Object(object) => {
            let types = match &object.schema_type {
                SchemaType::Type(only) => std::slice::from_ref(only),
                SchemaType::Array(types) => types.as_slice(),
                SchemaType::AnyValue => &[],
            };
            if types.contains(&Type::Object) && object.properties.is_empty() {
                let any = || Box::new(AdditionalProperties::FreeForm(true));
                object.additional_properties.get_or_insert_with(any);
            }
            object.properties.values_mut().for_each(open);
        }
        Schema::Array(array) => {
            if let ArrayItems::RefOrSchema(items) = &mut array.items {
                open(items);
            }
        }
        Schema::OneOf(OneOf { items, .. })
        | Schema::AllOf(AllOf { items, .. })
        | Schema::AnyOf(AnyOf { items, .. }) => {
            items.iter_mut().for_each(open);
        }
        _ => {}
    }
}

/// The closed list of codes.
impl PartialSchema for Code {
    fn schema() -> RefOr<Schema> {
        let codes = Object::builder().schema_type(Type::String);
        codes
            .enum_values(Some(Self::ALL.iter().map(|code| code.as_str())))
            .into()
    }
}

impl ToSchema for Code {
    fn name() -> std::borrow::Cow<'static, str> {
        "ProblemCode".into()
    }
}

/// A JSON Schema.
#[derive(ToSchema)]
#[schema(value_type = Object)]
#[expect(dead_code, reason = "describes a document that is sent as text")]
pub(crate) struct JsonSchema(Value);

/// An OpenAPI description.
#[derive(ToSchema)]
#[schema(value_type = Object, as = OpenApi)]
#[expect(dead_code, reason = "describes a document that is sent as text")]
pub(crate) struct Description(Value);
