//! Reads single values from the merged sources, and collects all errors.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use figment::Figment;
use figment::value::Value;
use secrecy::SecretString;

use super::dotenv::Dotenv;
use super::error::ConfigError;
use super::origin::Origin;
use super::secret::{shown, shown_refused};
use super::settings::{self, SETTINGS, Setting};
use super::{Config, Effective, Resolved};

/// The merged values, from which a [`Config`] is read.
pub(super) struct Read<'a> {
    figment: Figment,
    /// The merged layers; figment would merge them again for every lookup.
    merged: Value,
    lines: BTreeMap<String, usize>,
    environment: BTreeMap<String, String>,
    dotenv: Dotenv,
    read_file: &'a dyn Fn(&Path) -> io::Result<String>,
    errors: Vec<ConfigError>,
    warnings: Vec<String>,
    /// Values in effect that differ from the given ones.
    instead: BTreeMap<&'static str, (Option<String>, Origin)>,
}

impl<'a> Read<'a> {
    pub(super) fn new(
        figment: Figment,
        lines: BTreeMap<String, usize>,
        environment: BTreeMap<String, String>,
        dotenv: Dotenv,
        read_file: &'a dyn Fn(&Path) -> io::Result<String>,
        errors: Vec<ConfigError>,
        warnings: Vec<String>,
    ) -> Self {
        let merged = figment
            .find_value("")
            .unwrap_or_else(|error| unreachable!("no layer fails: {error}"));
        Self {
            figment,
            merged,
            lines,
            environment,
            dotenv,
            read_file,
            errors,
            warnings,
            instead: BTreeMap::new(),
        }
    }

    /// The value with its origin; `None` when it is not set.
    pub(super) fn value(&self, key: &str) -> Option<(Value, Origin)> {
        let value = self.merged.find_ref(key)?.clone();
        let origin = self.figment.get_metadata(value.tag()).map(Origin::from_metadata);
        Some((value, origin.unwrap_or_else(Origin::default)))
    }

    /// The value as text; a list or a table is an error.
    pub(super) fn text(&mut self, key: &'static str) -> Option<(String, Origin)> {
        let (value, origin) = self.value(key)?;
        match scalar(&value) {
            Some(text) => Some((text, origin)),
            None => {
                let setting = known(key);
                self.error(
                    key,
                    Some("a list or a table".to_owned()),
                    &origin,
                    format!("give {}", setting.allowed),
                );
                None
            }
        }
    }

    /// The value parsed by `parse`; a value that `parse` rejects is an error.
    pub(super) fn parse<T>(&mut self, key: &'static str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let (text, origin) = self.text(key)?;
        let parsed = parse(text.trim());
        if parsed.is_none() {
            let setting = known(key);
            let value = shown_refused(setting, &text);
            self.error(key, Some(value), &origin, format!("give {}", setting.allowed));
        }
        parsed
    }

    /// Text that is not blank.
    pub(super) fn word(&mut self, key: &'static str) -> Option<String> {
        self.parse(key, super::values::word)
    }

    /// A secret that is not blank.
    pub(super) fn secret(&mut self, key: &'static str) -> Option<SecretString> {
        self.parse(key, super::values::secret)
    }

    /// As `parse`, for a setting that is required because of `why`.
    pub(super) fn needed<T>(
        &mut self,
        key: &'static str,
        why: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        if self.value(key).is_none() {
            self.missing(key, why);
            return None;
        }
        self.parse(key, parse)
    }

    /// A path, relative to the file that contains the setting. It need not exist.
    pub(super) fn place(&mut self, key: &'static str) -> Option<PathBuf> {
        let origin = self.value(key)?.1;
        let named = PathBuf::from(self.word(key)?);
        Some(match origin.file().and_then(Path::parent) {
            Some(directory) => directory.join(named),
            None => named,
        })
    }

    /// As [`Self::place`], but the path must be readable.
    pub(super) fn path(&mut self, key: &'static str) -> Option<PathBuf> {
        let origin = self.value(key)?.1;
        let path = self.place(key)?;
        // Reading a directory as a file fails with an error of its own kind, which is allowed here.
        match (self.read_file)(&path) {
            Err(error) if error.kind() != io::ErrorKind::IsADirectory => {
                self.error(
                    key,
                    Some(path.display().to_string()),
                    &origin,
                    format!("cannot be read: {error}"),
                );
                None
            }
            Ok(_) | Err(_) => Some(path),
        }
    }

    /// Where the value was given.
    pub(super) fn origin(&self, key: &str) -> Origin {
        self.value(key).map_or_else(Origin::default, |(_, origin)| origin)
    }

    /// Whether the setting was given in any source.
    pub(super) fn is_given(&self, key: &str) -> bool {
        self.value(key).is_some_and(|(_, origin)| !origin.is_default())
    }

    /// The line of an element inside a list of the file; otherwise the place of the list.
    pub(super) fn place_inside(&self, inner: &str, origin: &Origin) -> String {
        match (origin.file(), self.lines.get(inner)) {
            (Some(file), Some(line)) => Origin::line(file, *line).to_string(),
            _ => origin.to_string(),
        }
    }

    /// A variable that is not a gavel setting but is read by libraries whose credentials gavel uses.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        let layers = [&self.environment, self.dotenv.values()];
        let mut set = layers.into_iter().filter_map(|layer| layer.get(name));
        set.find(|value| !value.is_empty()).cloned()
    }

    /// The file `.env`.
    pub(super) fn dotenv(&self) -> Dotenv {
        self.dotenv.clone()
    }

    pub(super) fn error(&mut self, key: &str, value: Option<String>, origin: &Origin, problem: String) {
        self.push(ConfigError {
            key: key.to_owned(),
            value,
            place: Some(origin.to_string()),
            problem,
        });
    }

    pub(super) fn missing(&mut self, key: &'static str, why: &str) {
        let setting = known(key);
        let problem = format!("{why}; give {} (environment {})", setting.allowed, setting.variable());
        self.push(ConfigError {
            key: key.to_owned(),
            value: None,
            place: None,
            problem,
        });
    }

    pub(super) fn push(&mut self, error: ConfigError) {
        self.errors.push(error);
    }

    pub(super) fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    /// Records the effective value where it differs from the given one.
    pub(super) fn in_effect(&mut self, key: &'static str, value: &str, origin: Origin) {
        self.instead.insert(key, (Some(value.to_owned()), origin));
    }

    /// The configuration, if there were no errors.
    pub(super) fn finish(mut self, config: Option<Config>) -> Result<Resolved, Vec<ConfigError>> {
        match config {
            Some(config) if self.errors.is_empty() => {
                let origins = SETTINGS.iter().map(|setting| self.effective(setting)).collect();
                Ok(Resolved {
                    config,
                    origins,
                    warnings: self.warnings,
                })
            }
            Some(_) => Err(self.errors),
            None if !self.errors.is_empty() => Err(self.errors),
            None => unreachable!("a value is missing, and no error explains it"),
        }
    }

    fn effective(&mut self, setting: &'static Setting) -> Effective {
        let (value, origin) = match (self.instead.remove(setting.key), self.value(setting.key)) {
            (Some(instead), _) => instead,
            (None, Some((value, origin))) => (Some(shown(setting, &text_of(&value))), origin),
            (None, None) => (None, Origin::default()),
        };
        Effective {
            key: setting.key,
            environment: setting.variable(),
            value,
            origin,
        }
    }
}

/// The setting of a key that is hard-coded in this crate.
fn known(key: &'static str) -> &'static Setting {
    settings::find(key).unwrap_or_else(|| unreachable!("{key} is not in the list of settings"))
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(_, text) => Some(text.clone()),
        Value::Char(_, char) => Some(char.to_string()),
        Value::Bool(_, yes) => Some(yes.to_string()),
        Value::Num(_, num) => {
            let whole = num
                .to_i128()
                .map(|n| n.to_string())
                .or_else(|| num.to_u128().map(|n| n.to_string()));
            whole.or_else(|| num.to_f64().map(|n| n.to_string()))
        }
        Value::Empty(..) | Value::Dict(..) | Value::Array(..) => None,
    }
}

fn text_of(value: &Value) -> String {
    scalar(value).unwrap_or_else(|| match value {
        Value::Array(_, items) => format!("{} entries", items.len()),
        _ => "a table".to_owned(),
    })
}
