//! Expands `${VAR}` and `${VAR:-default}` in the values of `mcp.json`. `${env:VAR}`, the syntax of other programs, has
//! the same meaning.

/// Replaces every `${…}` of `text`. Values are not expanded again, so a variable's value cannot refer to another
/// variable.
///
/// # Errors
/// A variable without a value, or a `${` without an end.
pub(super) fn expand(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, Unexpandable> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        out.push_str(&rest[..start]);
        let inner = &rest[start + 2..];
        let end = inner.find('}').ok_or(Unexpandable::Open)?;
        let (name, default) = match inner[..end].split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (&inner[..end], None),
        };
        let name = name.strip_prefix("env:").unwrap_or(name);
        if !is_name(name) {
            return Err(Unexpandable::Name(name.to_owned()));
        }
        // As in a shell, `:-` also applies to a variable that is set but empty.
        let value = env(name).filter(|value| default.is_none() || !value.is_empty());
        match (value, default) {
            (Some(value), _) => out.push_str(&value),
            (None, Some(default)) => out.push_str(default),
            (None, None) => return Err(Unexpandable::Undefined(name.to_owned())),
        }
        rest = &inner[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Why a value could not be expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unexpandable {
    Undefined(String),
    Name(String),
    Open,
}

impl Unexpandable {
    /// What was found.
    pub(super) fn found(&self) -> String {
        match self {
            Self::Undefined(name) => format!("the variable {name}, which is not set"),
            Self::Name(name) => format!("the variable `{name}`"),
            Self::Open => "`${` without `}`".to_owned(),
        }
    }

    /// What is allowed.
    pub(super) fn allowed(&self) -> String {
        match self {
            Self::Undefined(name) => format!("a variable that is set, or ${{{name}:-default}}"),
            Self::Name(_) | Self::Open => "${NAME} or ${env:NAME}".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn env(name: &str) -> Option<String> {
        match name {
            "HOST" => Some("example".into()),
            "EMPTY" => Some(String::new()),
            "NESTED" => Some("${HOST}".into()),
            _ => None,
        }
    }

    #[test]
    fn variables_defaults_and_plain_text_are_put_together() {
        let all = "http://${HOST}:${PORT:-80}/${EMPTY}${EMPTY:-x}$HOST";
        assert_eq!(expand(all, &env).unwrap(), "http://example:80/x$HOST");
    }

    #[test]
    fn variables_are_also_written_as_other_programs_do() {
        assert_eq!(expand("${env:HOST}/${env:PORT:-80}", &env).unwrap(), "example/80");
        assert_eq!(expand("${env:NOPE}", &env), Err(Unexpandable::Undefined("NOPE".into())));
        assert_eq!(
            expand("${input:key}", &env),
            Err(Unexpandable::Name("input:key".into()))
        );
    }

    #[test]
    fn a_value_is_not_expanded_again() {
        assert_eq!(expand("${NESTED}", &env).unwrap(), "${HOST}");
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(expand("a${NOPE}", &env), Err(Unexpandable::Undefined("NOPE".into())));
        assert_eq!(expand("a${NOPE", &env), Err(Unexpandable::Open));
        assert_eq!(expand("${A B}", &env), Err(Unexpandable::Name("A B".into())));
        assert!(
            Unexpandable::Undefined("NOPE".into())
                .allowed()
                .contains("${NOPE:-default}")
        );
    }
}
