//! Collects the configuration sources of the process: environment, working directory, files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use super::dotenv::Dotenv;
use super::error::{ConfigError, ConfigErrors};
use super::origin::Origin;
use super::settings::{CONFIG_FILE, SETTINGS};
use super::trust::{self, REMEDY, is_trusted};
use super::{Config, Flags, Resolved, Sources};

/// The file that is read when no other is named.
const DEFAULT_FILE: &str = "gavel.toml";

impl Config {
    /// Loads the configuration of this process.
    ///
    /// # Errors
    /// As [`Config::resolve`]; also if a named `gavel.toml` or an existing `.env` cannot be read.
    pub fn load(flags: &Flags) -> Result<Resolved, ConfigErrors> {
        let flags = flags.values();
        let environment = environment().map_err(ConfigErrors)?;
        let dotenv = Dotenv::read()?;
        let file = file(&flags, &environment, &dotenv).map_err(|error| ConfigErrors(vec![error]))?;
        let read_file = |path: &Path| fs::read_to_string(path);
        Config::resolve(Sources {
            flags,
            environment,
            dotenv,
            file,
            read_file: &read_file,
        })
        .map_err(ConfigErrors)
    }
}

/// The variables that are valid UTF-8. An invalid value of a gavel setting is an error; other variables are ignored.
fn environment() -> Result<BTreeMap<String, String>, Vec<ConfigError>> {
    let mut variables = BTreeMap::new();
    let mut errors = Vec::new();
    for (name, value) in env::vars_os() {
        match (name.into_string(), value.into_string()) {
            (Ok(name), Ok(value)) => {
                variables.insert(name, value);
            }
            (Ok(name), Err(_)) => {
                let ours = SETTINGS
                    .iter()
                    .find(|setting| setting.environment.contains(&name.as_str()));
                errors.extend(ours.map(|setting| ConfigError {
                    key: setting.key.to_owned(),
                    value: None,
                    place: Some(Origin::environment(&name).to_string()),
                    problem: format!("is not valid UTF-8; give {}", setting.allowed),
                }));
            }
            (Err(_), _) => {}
        }
    }
    if errors.is_empty() { Ok(variables) } else { Err(errors) }
}

fn file(
    flags: &BTreeMap<&'static str, String>,
    environment: &BTreeMap<String, String>,
    dotenv: &Dotenv,
) -> Result<Option<(PathBuf, String)>, ConfigError> {
    let variable = "GAVEL_CONFIG";
    let by_flag = flags.get(CONFIG_FILE).map(|path| (path, Origin::flag("--config")));
    let by_variable = || {
        let path = environment.get(variable).filter(|path| !path.is_empty())?;
        Some((path, Origin::environment(variable)))
    };
    let by_dotenv = || {
        let path = dotenv.values().get(variable).filter(|path| !path.is_empty())?;
        Some((path, Origin::dotenv(variable)))
    };
    let Some((path, origin)) = by_flag.or_else(by_variable).or_else(by_dotenv) else {
        let found = |text| Some((PathBuf::from(DEFAULT_FILE), text));
        return match trust::read(DEFAULT_FILE) {
            Ok(text) if is_trusted() => Ok(found(text)),
            Ok(_) => Err(ConfigError {
                key: CONFIG_FILE.to_owned(),
                value: Some(DEFAULT_FILE.to_owned()),
                place: None,
                problem: format!("is not named by --config, and {REMEDY}"),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unreadable(DEFAULT_FILE, None, &error)),
        };
    };
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some((PathBuf::from(path), text))),
        Err(error) => Err(unreadable(path, Some(&origin), &error)),
    }
}

fn unreadable(path: &str, origin: Option<&Origin>, error: &io::Error) -> ConfigError {
    ConfigError {
        key: CONFIG_FILE.to_owned(),
        value: Some(path.to_owned()),
        place: origin.map(ToString::to_string),
        problem: format!("cannot be read: {error}"),
    }
}
