//! Globs from arguments.

use gavel_mcp_base::ToolError;
use globset::{GlobBuilder, GlobMatcher};

use crate::error::Code;

pub(super) const MAX_CHARS: usize = 1000;

/// A glob over paths with `/` between their parts, which `*` and `?` do not match.
pub(super) fn glob(argument: &str, pattern: &str) -> Result<GlobMatcher, ToolError> {
    if pattern.starts_with('/') || pattern.split('/').any(|part| part == "..") {
        return Err(refuse(
            argument,
            pattern,
            "can match nothing: it is compared with paths relative to path, without `/` at the start and without `..`",
        ));
    }
    GlobBuilder::new(pattern)
        .literal_separator(true)
        .build()
        .map(|glob| glob.compile_matcher())
        .map_err(|error| refuse(argument, pattern, &format!("is not a valid glob: {}", error.kind())))
}

/// A pattern asks for hidden files by a part that begins with a dot.
pub(super) fn names_hidden(pattern: &str) -> bool {
    pattern
        .split(['/', '{', ','])
        .any(|part| part.starts_with('.') && part != ".")
}

fn refuse(argument: &str, pattern: &str, rule: &str) -> ToolError {
    ToolError::new(
        Code::InvalidPattern,
        format!("`{argument}` `{}` {rule}.", pattern.escape_debug()),
    )
}
