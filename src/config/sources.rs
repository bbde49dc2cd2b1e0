//! Merges the given values over the defaults: flags > environment > `.env` > `gavel.toml` > defaults.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use figment::Figment;
use figment::value::Value;

use super::dotenv::Dotenv;
use super::error::ConfigError;
use super::file::{self, FileValues};
use super::given::{Given, secret_in};
use super::origin::Origin;
use super::read::Read;
use super::settings::{CONFIG_FILE, OTHER_VARIABLES, SETTINGS, Setting};
use crate::domain::definition::nearest::nearest;

/// All sources of a configuration. The core reads nothing else.
pub struct Sources<'a> {
    /// Values of flags, by key.
    pub flags: BTreeMap<&'static str, String>,
    /// The process environment.
    pub environment: BTreeMap<String, String>,
    /// The variables of the file `.env`.
    pub dotenv: Dotenv,
    /// Path and text of `gavel.toml`, if it exists.
    pub file: Option<(PathBuf, String)>,
    /// Reads a file that contains a secret, or checks that a named file is readable.
    pub read_file: &'a dyn Fn(&Path) -> io::Result<String>,
}

impl<'a> Sources<'a> {
    /// Merges the sources. Errors in single values are kept in the result.
    pub(super) fn lay(self) -> Result<Read<'a>, Vec<ConfigError>> {
        let mut errors = Vec::new();
        let mut warnings = Vec::new();
        let file = match &self.file {
            Some((path, text)) => file::values(path, text, self.read_file, &mut errors).map_err(|error| vec![error])?,
            None => FileValues::default(),
        };
        let defaults = SETTINGS.iter().filter_map(|setting| {
            let value = Value::from(setting.default?);
            Some(Given {
                key: setting.key,
                value,
                origin: Origin::default(),
            })
        });
        let found_file = self.file.as_ref().map(|(path, _)| Given {
            key: CONFIG_FILE,
            value: Value::from(path.display().to_string()),
            origin: Origin::default_because("it is in the working directory"),
        });
        let environment = Variables {
            values: &self.environment,
            origin: Origin::environment,
        };
        let dotenv = Variables {
            values: self.dotenv.values(),
            origin: Origin::dotenv,
        };
        let environment_values = environment.given(self.read_file, &mut errors, &mut warnings);
        let dotenv_values = dotenv.given(self.read_file, &mut errors, &mut warnings);
        let flags = self.flags.iter().map(|(key, text)| Given {
            key,
            value: Value::from(text.as_str()),
            origin: Origin::flag(
                super::settings::find(key)
                    .and_then(|setting| setting.flag)
                    .unwrap_or(key),
            ),
        });
        let figment = defaults
            .chain(found_file)
            .chain(file.given)
            .chain(dotenv_values)
            .chain(environment_values)
            .chain(flags)
            .fold(Figment::new(), Figment::merge);
        dotenv.warn_of_unknown(&mut warnings);
        environment.warn_of_unknown(&mut warnings);
        Ok(Read::new(
            figment,
            file.lines,
            self.environment,
            self.dotenv,
            self.read_file,
            errors,
            warnings,
        ))
    }
}

/// The variables of the process or of a `.env` file.
struct Variables<'a> {
    values: &'a BTreeMap<String, String>,
    origin: fn(&str) -> Origin,
}

/// Reads a file that contains a secret.
type ReadFile<'a> = &'a dyn Fn(&Path) -> io::Result<String>;

impl Variables<'_> {
    /// The settings that these variables give.
    fn given(&self, read_file: ReadFile<'_>, errors: &mut Vec<ConfigError>, warnings: &mut Vec<String>) -> Vec<Given> {
        let mut given = Vec::new();
        for setting in SETTINGS {
            let mut found: Vec<(&str, Given)> = Vec::new();
            for &variable in setting.environment {
                if let Some(value) = self.value(setting, variable, read_file, errors) {
                    found.push((variable, value));
                }
            }
            let mut found = found.into_iter();
            let Some((used, first)) = found.next() else { continue };
            for (other, value) in found {
                if value.value.as_str() != first.value.as_str() {
                    warnings.push(format!("{used} and {other} are both set and differ; {used} is used"));
                }
            }
            given.push(first);
        }
        given
    }

    /// The value of `variable`, or of the file that `variable_FILE` names.
    fn value(
        &self,
        setting: &Setting,
        variable: &str,
        read_file: ReadFile<'_>,
        errors: &mut Vec<ConfigError>,
    ) -> Option<Given> {
        let set = |name: &str| self.values.get(name).filter(|value| !value.is_empty());
        let by_file = format!("{variable}_FILE");
        let path = set(&by_file).filter(|_| setting.in_file());
        let given = |value: &str, origin| Given {
            key: setting.key,
            value: Value::from(value),
            origin,
        };
        match (set(variable), path) {
            (Some(_), Some(path)) => {
                errors.push(ConfigError {
                    key: setting.key.to_owned(),
                    value: None,
                    place: Some((self.origin)(variable).to_string()),
                    problem: format!("is also given by {by_file} = {path:?}; keep one of the two"),
                });
                None
            }
            (Some(value), None) => Some(given(value, (self.origin)(variable))),
            (None, Some(path)) => {
                let named_by = (self.origin)(&by_file);
                let path = Path::new(path);
                match secret_in(path, read_file) {
                    Ok(text) => Some(given(&text, Origin::named_file(path, &named_by))),
                    Err(problem) => {
                        errors.push(ConfigError {
                            key: setting.key.to_owned(),
                            value: Some(path.display().to_string()),
                            place: Some(named_by.to_string()),
                            problem,
                        });
                        None
                    }
                }
            }
            (None, None) => None,
        }
    }

    /// An unknown variable that begins with `GAVEL_` is usually a typing error.
    fn warn_of_unknown(&self, warnings: &mut Vec<String>) {
        let known = || {
            SETTINGS
                .iter()
                .flat_map(|setting| setting.environment.iter().map(move |name| (setting, *name)))
        };
        for name in self.values.keys().filter(|name| name.starts_with("GAVEL_")) {
            let is_known = known().any(|(setting, variable)| {
                name == variable || setting.in_file() && name.strip_suffix("_FILE") == Some(variable)
            });
            if is_known || OTHER_VARIABLES.contains(&name.as_str()) {
                continue;
            }
            let meant = nearest(name, known().map(|(_, variable)| variable));
            let meant = meant
                .map(|meant| format!("; did you mean {meant}?"))
                .unwrap_or_default();
            warnings.push(format!("{}: gavel has no such setting{meant}", (self.origin)(name)));
        }
    }
}
