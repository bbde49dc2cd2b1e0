//! The key or token for a remote gavel.

use anyhow::{Context, bail};
use secrecy::SecretString;

use crate::config::Dotenv;

/// The variable with the key or token to send; `…_FILE` names a file that holds it.
pub(super) const KEY: &str = "GAVEL_API_KEY";

/// The key of the environment, or else of `.env`.
pub(super) fn key() -> anyhow::Result<Option<SecretString>> {
    match key_of(&|name| std::env::var(name).ok())? {
        Some(key) => Ok(Some(key)),
        None => {
            let dotenv = Dotenv::read()?;
            key_of(&|name| dotenv.variable(name))
        }
    }
}

fn key_of(variable: &dyn Fn(&str) -> Option<String>) -> anyhow::Result<Option<SecretString>> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let by_file = format!("{KEY}_FILE");
    match (set(KEY), set(&by_file)) {
        (Some(_), Some(_)) => bail!("{KEY} and {by_file} are both given; keep one of the two"),
        (Some(key), None) => Ok(Some(SecretString::from(key))),
        (None, Some(path)) => {
            let text = std::fs::read_to_string(&path).with_context(|| format!("{by_file}: {path} cannot be read"))?;
            Ok(Some(SecretString::from(text.trim_end())))
        }
        (None, None) => Ok(None),
    }
}
