//! Texts with placeholders, and the fixed replies made of them (C-FR-013).

mod replies;
mod template;

pub use replies::{Progress, ReplyArgs, Templates, TemplatesError};
pub use template::{Template, TemplateError};
