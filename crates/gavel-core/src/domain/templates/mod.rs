//! Texts with placeholders, and the fixed replies made from them (C-FR-013).

mod built_in;
mod replies;
mod template;
mod texts;

pub use replies::{Progress, ReplyArgs, Templates, TemplatesError};
pub(crate) use template::malformed_at;
pub use template::{MOST_RENDERED, RenderError, Template, TemplateError};
pub use texts::{Text, counted, sentence, time};
