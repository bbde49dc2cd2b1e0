//! One row of the table of settings.

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Dotted key in `gavel.toml`.
    pub key: &'static str,
    /// Environment variables; messages name the first one.
    pub environment: &'static [&'static str],
    /// Flag, including its dashes.
    pub flag: Option<&'static str>,
    /// How far the value is masked in output. A masked setting may also be given as `NAME_FILE`, or `key_file`.
    pub secrecy: Secrecy,
    /// The default value.
    pub default: Option<&'static str>,
    /// What applies when no value is given and there is no default.
    pub absent: &'static str,
    /// What is allowed; follows the word "give".
    pub allowed: &'static str,
    /// Purpose of the setting, in one sentence.
    pub about: &'static str,
}

/// How far a value may be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secrecy {
    /// In full.
    Open,
    /// Without the password it may contain.
    Url,
    /// Not at all.
    Secret,
}

pub(super) const fn setting(
    key: &'static str,
    environment: &'static [&'static str],
    allowed: &'static str,
    about: &'static str,
) -> Setting {
    Setting {
        key,
        environment,
        flag: None,
        secrecy: Secrecy::Open,
        default: None,
        absent: "not set",
        allowed,
        about,
    }
}

impl Setting {
    pub(super) const fn flag(self, flag: &'static str) -> Self {
        Self {
            flag: Some(flag),
            ..self
        }
    }
    pub(super) const fn default(self, default: &'static str) -> Self {
        Self {
            default: Some(default),
            ..self
        }
    }
    pub(super) const fn absent(self, absent: &'static str) -> Self {
        Self { absent, ..self }
    }
    pub(super) const fn secret(self) -> Self {
        Self {
            secrecy: Secrecy::Secret,
            ..self
        }
    }
    pub(super) const fn url(self) -> Self {
        Self {
            secrecy: Secrecy::Url,
            ..self
        }
    }

    /// Whether it may be given as the path of a file that contains the value.
    #[must_use]
    pub fn in_file(&self) -> bool {
        self.secrecy != Secrecy::Open
    }

    /// The variable that messages name.
    #[must_use]
    pub fn variable(&self) -> &'static str {
        self.environment[0]
    }
}
