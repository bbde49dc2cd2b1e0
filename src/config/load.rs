//! Collects the configuration sources of the process: environment, working directory, files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use gavel_reading::ReadError;

use super::dotenv::Dotenv;
use super::origin::Origin;
use super::read::Sources;
use super::trust::{self, REMEDY, is_trusted};
use super::{CONFIG_FILE, Config, ConfigErrors, Flags, Resolved, SETTINGS, Setting};

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
fn environment() -> Result<BTreeMap<String, String>, Vec<ReadError>> {
    let mut variables = BTreeMap::new();
    let mut errors = Vec::new();
    for (name, value) in env::vars_os() {
        match (name.into_string(), value.into_string()) {
            (Ok(name), Ok(value)) => {
                variables.insert(name, value);
            }
            (Ok(name), Err(_)) => {
                let is_ours = |setting: &&Setting| setting.environment.contains(&name);
                errors.extend(SETTINGS.iter().find(is_ours).map(|setting| ReadError {
                    file: Origin::environment(&name).to_string(),
                    line: None,
                    field: setting.key.to_owned(),
                    found: "bytes that are not UTF-8".to_owned(),
                    allowed: setting.allowed.clone(),
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
) -> Result<Option<(PathBuf, String)>, ReadError> {
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
            Ok(_) => Err(error("", format!("{DEFAULT_FILE}, not named by --config"), REMEDY)),
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(problem) => Err(error("", unreadable(DEFAULT_FILE, &problem), READABLE)),
        };
    };
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some((PathBuf::from(path), text))),
        Err(problem) => Err(error(&origin.to_string(), unreadable(path, &problem), READABLE)),
    }
}

const READABLE: &str = "the path of a TOML file";

fn unreadable(path: &str, problem: &io::Error) -> String {
    format!("{path}, which cannot be read: {problem}")
}

fn error(place: &str, found: String, allowed: &str) -> ReadError {
    ReadError {
        file: place.to_owned(),
        line: None,
        field: CONFIG_FILE.to_owned(),
        found,
        allowed: allowed.to_owned(),
    }
}
