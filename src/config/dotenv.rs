//! The file `.env` in the working directory: variables that count where the environment does not set them. They are laid below the
//! environment and never put into it, so that no child process inherits them.

use std::collections::BTreeMap;
use std::{env, fmt, fs, io};

use super::error::{ConfigError, ConfigErrors};

/// The variables of a `.env` file. Their values can be secrets, so they do not print.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Dotenv(BTreeMap<String, String>);

/// Where it is looked for.
const FILE: &str = ".env";

impl Dotenv {
    /// The file in the working directory; no variables where there is none.
    ///
    /// # Errors
    /// It cannot be read, or a line of it is no `NAME=value`.
    pub fn read() -> Result<Self, ConfigErrors> {
        let problem = match fs::read_to_string(FILE) {
            Ok(text) => return Self::parse(&text).map_err(|error| ConfigErrors(vec![error])),
            // Python keeps a virtual environment in a folder of this name.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::IsADirectory) => {
                return Ok(Self::default());
            }
            Err(error) => format!("cannot be read: {error}"),
        };
        Err(ConfigErrors(vec![mistake(FILE.to_owned(), problem)]))
    }

    /// The variables of a text: `NAME=value` a line, `#` begins a comment, `export` before a name is passed over. In double quotes and
    /// without quotes `$NAME` stands for another variable; single quotes keep a value as it is. Of a name that comes twice the last
    /// one counts.
    ///
    /// # Errors
    /// The line that is none of these, without its text: that can be a secret.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let text = text.trim_start_matches('\u{feff}');
        let variables: Result<_, _> = dotenvy::from_read_iter(text.as_bytes()).collect();
        variables.map(Self).map_err(|error| {
            let line = match &error {
                dotenvy::Error::LineParse(line, _) => text.find(line.as_str()),
                _ => None,
            };
            let place = line.map_or(FILE.to_owned(), |at| {
                format!("{FILE}:{}", text[..at].matches('\n').count() + 1)
            });
            let problem =
                "is not a line of the form NAME=value; put a value with blanks, quotes or $ into single quotes";
            mistake(place, problem.to_owned())
        })
    }

    pub(super) fn values(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// A variable of the process, or of the file where the process has none or an empty one.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<String> {
        let of_the_process = env::var(name).ok();
        match of_the_process {
            Some(value) if !value.is_empty() => Some(value),
            unset => self.0.get(name).cloned().or(unset),
        }
    }
}

fn mistake(place: String, problem: String) -> ConfigError {
    ConfigError {
        key: FILE.to_owned(),
        value: None,
        place: Some(place).filter(|place| place != FILE),
        problem,
    }
}

impl fmt::Debug for Dotenv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dotenv").field(&self.0.keys()).finish()
    }
}
