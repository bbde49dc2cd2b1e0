//! Entry points for `fuzz/`: each function processes untrusted bytes as the service would. It must not panic or take
//! long.
//!
//! Compiled only for cargo-fuzz (`cfg(fuzzing)`); `scripts/fuzz` runs it.

use serde_json::Value;

pub use crate::adapters::gemini::fuzzing as gemini;
pub use crate::adapters::mcp::fuzzing as mcp;
pub use crate::adapters::store::filter_of_decisions as filter;
use crate::domain::definition::{Definition, Form};
use crate::domain::model_schema::translate;
use crate::domain::policy::Policy;
use crate::domain::schema::{Effort, JsonSchema};
use crate::domain::templates::Template;

/// Translates a schema for the model, and checks a value against it.
pub fn schema(schema: &Value, value: &Value) {
    let _ = translate(schema, &["user_id"]);
    if let Ok(schema) = JsonSchema::compile(crate::domain::canonical::to_raw(schema)) {
        for effort in [Effort::Quick, Effort::Full] {
            let _ = schema.check(value, effort);
        }
    }
}

/// Reads a definition in each form, and a policy.
pub fn definition(bytes: &[u8]) {
    for form in [Form::Markdown, Form::Yaml, Form::Json, Form::Proto] {
        if let Ok(definition) = Definition::read(bytes, form, "fuzz") {
            let again = Definition::read(&definition.write(form), form, "fuzz").expect("what is written can be read");
            assert_eq!(again.hash, definition.hash, "{form:?}");
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Policy::read(text, "fuzz");
    }
}

/// Parses a template and renders it with a long text in each placeholder.
pub fn template(text: &str) {
    if let Ok(template) = Template::parse(text) {
        let long = "x".repeat(64 * 1024);
        let _ = template.render(|_| Some(long.clone()));
    }
}
