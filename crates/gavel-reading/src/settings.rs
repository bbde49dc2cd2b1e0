//! Settings: typed structs whose fields are the settings.

use std::cell::RefCell;

use crate::fields::{At, Parser};
use crate::node::{Content, Node};

/// One setting, as a line of [`settings!`](crate::settings!) declares it.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Dotted key in `gavel.toml`.
    pub key: &'static str,
    /// Environment variables; messages name the first one. By default the key's, with `GAVEL_` before it.
    pub environment: Vec<String>,
    /// Flag, including its dashes, and the name of its value.
    pub flag: Option<(&'static str, &'static str)>,
    /// How far the value is masked in output. A masked setting may also be given as `NAME_FILE`, or `key_file`.
    pub secrecy: Secrecy,
    /// The default value.
    pub default: Option<&'static str>,
    /// What applies when no value is given and there is no default.
    pub absent: &'static str,
    /// What is allowed.
    pub allowed: String,
    /// Its purpose.
    pub about: String,
    /// Whether it names a file, and whether that must exist. A relative path in `gavel.toml` is relative to that file.
    pub file: Option<File>,
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

/// What a path must name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// A file or a directory that can be read.
    Readable,
    /// A file, which need not exist.
    Any,
}

impl Setting {
    /// A setting without a default; for the macro.
    pub fn new(key: &'static str, about: &str, allowed: String) -> Self {
        Self {
            key,
            environment: vec![format!("GAVEL_{}", key.to_uppercase().replace('.', "_"))],
            flag: None,
            secrecy: Secrecy::Open,
            default: None,
            absent: "not set",
            allowed,
            about: about.trim().to_owned(),
            file: None,
        }
    }

    /// With these environment variables.
    #[must_use]
    pub fn variables(self, names: &[&str]) -> Self {
        let environment = names.iter().map(|name| (*name).to_owned()).collect();
        Self { environment, ..self }
    }

    /// With a flag.
    #[must_use]
    pub fn flag(self, flag: &'static str, value: &'static str) -> Self {
        let flag = Some((flag, value));
        Self { flag, ..self }
    }

    /// With a default.
    #[must_use]
    pub fn default(self, default: &'static str) -> Self {
        let default = Some(default);
        Self { default, ..self }
    }

    /// With words for what applies when it is not given.
    #[must_use]
    pub fn absent(self, absent: &'static str) -> Self {
        Self { absent, ..self }
    }

    /// Masked.
    #[must_use]
    pub fn secret(self) -> Self {
        let secrecy = Secrecy::Secret;
        Self { secrecy, ..self }
    }

    /// A URL that may contain a password.
    #[must_use]
    pub fn url(self) -> Self {
        let secrecy = Secrecy::Url;
        Self { secrecy, ..self }
    }

    /// The path of something that can be read.
    #[must_use]
    pub fn readable(self) -> Self {
        let file = Some(File::Readable);
        Self { file, ..self }
    }

    /// The path of a file, which need not exist.
    #[must_use]
    pub fn path(self) -> Self {
        let file = Some(File::Any);
        Self { file, ..self }
    }

    /// Whether it may be given as the path of a file that contains the value.
    pub fn in_file(&self) -> bool {
        self.secrecy != Secrecy::Open
    }

    /// The variable that messages name.
    pub fn variable(&self) -> &str {
        &self.environment[0]
    }

    /// Its default as a value.
    pub fn default_node(&self) -> Option<Node> {
        Some(Node::bare(Content::Text(self.default?.to_owned())))
    }
}

/// What has the values of settings.
pub trait Values {
    /// The value of a setting; `None` if it is absent or invalid. An invalid one is reported.
    fn get<P: Parser>(&self, key: &'static str, parser: P) -> Option<P::Value>;
}

/// The defaults of these settings.
pub struct Defaults(pub Vec<Setting>);

impl Values for Defaults {
    fn get<P: Parser>(&self, key: &'static str, parser: P) -> Option<P::Value> {
        let node = self.0.iter().find(|setting| setting.key == key)?.default_node()?;
        parser.parse(&At::root(&RefCell::default(), key, &node))
    }
}

/// How a setting becomes a field: an `Option` may be absent, all others must have a value.
pub trait FromSetting<V>: Sized {
    /// `None` if the field cannot be without a value.
    fn from_setting(value: Option<V>) -> Option<Self>;
}

impl<V> FromSetting<V> for Option<V> {
    fn from_setting(value: Self) -> Option<Self> {
        Some(value)
    }
}

impl<V> FromSetting<Self> for V {
    fn from_setting(value: Option<Self>) -> Option<Self> {
        value
    }
}

/// Declares a section of settings: each field is a setting, with its documentation, its parser, and what else it has
/// (`default`, `absent`, `variables`, `flag`, `secret`, `readable`, …: the functions of [`Setting`]). Its key is the
/// section's prefix and the field's name.
///
/// `with values: impl Values { … }` adds parts, each made from the values by an expression of `Option`.
///
/// `Self::rows()` are its settings, `Self::read(values)` reads them.
#[macro_export]
macro_rules! settings {
    ($(#[$meta:meta])* $vis:vis struct $section:ident = $prefix:literal {
        $($(#[doc = $about:literal])+ $field:ident: $type:ty = $parser:expr $(, $has:ident($($value:expr),*))*;)+
    }) => {
        $crate::settings! {
            $(#[$meta])* $vis struct $section = $prefix {
                $($(#[doc = $about])+ $field: $type = $parser $(, $has($($value),*))*;)+
            } with values: impl $crate::Values {}
        }
    };
    ($(#[$meta:meta])* $vis:vis struct $section:ident = $prefix:literal {
        $($(#[doc = $about:literal])+ $field:ident: $type:ty = $parser:expr $(, $has:ident($($value:expr),*))*;)+
    } with $values:ident: $source:ty {
        $($(#[$part_about:meta])+ $part:ident: $part_type:ty = $make:expr;)*
    }) => {
        $(#[$meta])*
        $vis struct $section {
            $($(#[doc = $about])+ $vis $field: $type,)+
            $($(#[$part_about])+ $vis $part: $part_type,)*
        }

        impl $section {
            /// Its settings, without those of its parts.
            $vis fn rows() -> Vec<$crate::Setting> {
                vec![$({
                    let allowed = $crate::Parser::allowed(&$parser);
                    let about = concat!($($about),+);
                    $crate::Setting::new(concat!($prefix, stringify!($field)), about, allowed) $(.$has($($value),*))*
                },)+]
            }

            /// Reads the settings; every error is reported.
            $vis fn read($values: &$source) -> Option<Self> {
                $(
                    let $field = $crate::Values::get($values, concat!($prefix, stringify!($field)), $parser);
                    let $field = <$type as $crate::FromSetting<_>>::from_setting($field);
                )+
                $(let $part: Option<$part_type> = $make;)*
                Some(Self { $($field: $field?,)+ $($part: $part?,)* })
            }
        }
    };
}
