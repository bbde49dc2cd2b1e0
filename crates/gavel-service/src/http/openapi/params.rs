//! Parameters that operations share.

use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::ObjectBuilder;
use utoipa::openapi::{Object, RefOr, Required, Schema, Type};

use crate::http::query::{DEFAULT_PAGE, MAX_PAGE};
use crate::http::spelling::Spelling;

/// A header that may be absent.
pub(crate) fn header(name: &str, about: &str, schema: ObjectBuilder) -> ParameterBuilder {
    Parameter::builder()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(about))
        .schema(Some(schema))
}

/// A segment of a path.
pub(crate) fn segment(name: &str, about: &str) -> ParameterBuilder {
    header(name, about, string())
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
}

/// A parameter of a query that may be absent.
pub(crate) fn in_query(name: &str, about: &str) -> ParameterBuilder {
    header(name, about, string()).parameter_in(ParameterIn::Query)
}

/// Any text.
pub(crate) fn string() -> ObjectBuilder {
    Object::builder().schema_type(Type::String)
}

/// A text of at least one character.
fn visible(most: usize) -> ObjectBuilder {
    let pattern = format!("^[!-~]{{1,{most}}}$");
    string()
        .min_length(Some(1))
        .max_length(Some(most))
        .pattern(Some(pattern))
}

/// The acting user. Non-ASCII letters are accepted as UTF-8, which the schema of a header cannot express.
pub(crate) fn user(about: &str) -> ParameterBuilder {
    header("X-Gavel-User", about, visible(256))
}

/// The idempotency key.
pub(crate) fn key(about: &str) -> ParameterBuilder {
    header("Idempotency-Key", about, visible(255))
}

/// The id of a request; of every operation.
pub(super) fn request_id() -> ParameterBuilder {
    let about = "Your id for this request, 1 to 128 letters, digits or `-_.:~+/=`; any other value is replaced. The response\n\
                 repeats it.";
    header("X-Request-Id", about, string())
}

/// Removes the format of a number: the server reads larger ones than `int32` or `int64`, up to the maximum that is named.
pub(super) fn without_format(parameter: &mut RefOr<Parameter>) {
    if let RefOr::T(Parameter {
        schema: Some(RefOr::T(Schema::Object(schema))),
        ..
    }) = parameter
    {
        schema.format = None;
    }
}

/// The page of a list.
pub(crate) fn paging(spelling: Spelling) -> [ParameterBuilder; 2] {
    let rows = Object::builder()
        .schema_type(Type::Integer)
        .minimum(Some(1))
        .maximum(Some(MAX_PAGE))
        .default(Some(DEFAULT_PAGE.into()));
    let next = match spelling {
        Spelling::Snake => "next_page_token",
        Spelling::Camel => "nextPageToken",
    };
    let token = format!("`{next}` of the previous page; valid only with the same filter and order.");
    [
        in_query(spelling.page_size(), "Rows of a page.").schema(Some(rows)),
        in_query(spelling.page_token(), &token),
    ]
}

/// What `filter` of a list with these fields accepts.
pub(crate) fn filter(fields: &str) -> String {
    format!(
        "Conditions joined by `AND`: field, `=`, `!=`, `<`, `<=`, `>` or `>=`, value. Strings are in double quotes; one \
         that ends in `*` is a prefix. Fields: {fields}."
    )
}
