//! The file `.env` in the working directory. Its variables are used where the environment does not set them. They are a
//! layer below the environment and are never put into it, so no child process inherits them.

use std::collections::BTreeMap;
use std::{env, fmt, io};

use gavel_reading::ReadError;

use super::ConfigErrors;
use super::SETTINGS;
use super::trust::{REMEDY, is_trusted, read};

/// The variables of a `.env` file. Their values can be secrets, so `Debug` prints only the names.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Dotenv(BTreeMap<String, String>);

/// Path of the file, in the working directory.
const FILE: &str = ".env";

impl Dotenv {
    /// Reads the file in the working directory; returns no variables when the file does not exist, or is another
    /// program's in a directory that is not trusted.
    ///
    /// # Errors
    /// The file cannot be read, or a line is not of the form `NAME=value`; it has settings of gavel, and the directory is
    /// not trusted.
    pub fn read() -> Result<Self, ConfigErrors> {
        let (found, allowed) = match read(FILE) {
            Ok(text) => {
                let found = Self::parse(&text).map_err(|error| ConfigErrors(vec![error]))?;
                if is_trusted() {
                    return Ok(found);
                }
                let of_settings = || SETTINGS.iter().flat_map(|setting| &setting.environment);
                let of_gavel = |name: &str| name.starts_with("GAVEL_") || of_settings().any(|known| known == name);
                match found.0.keys().find(|name| of_gavel(name)) {
                    Some(name) => (name.clone(), format!("none of gavel's: {REMEDY}")),
                    // It is for another program.
                    None => return Ok(Self::default()),
                }
            }
            // Python keeps a virtual environment in a directory of this name.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::IsADirectory) => {
                return Ok(Self::default());
            }
            Err(error) => (
                format!("a file that cannot be read: {error}"),
                "a text in UTF-8".to_owned(),
            ),
        };
        Err(ConfigErrors(vec![error_at(None, &found, &allowed)]))
    }

    /// Parses variables: one `NAME=value` per line, `#` begins a comment, and `export` before a name is ignored. In
    /// double quotes and without quotes, `$NAME` is replaced by that variable; single quotes keep a value unchanged. If
    /// a name occurs twice, the last value is used.
    ///
    /// # Errors
    /// Names the invalid line by its number, without its text: the text can be a secret.
    pub fn parse(text: &str) -> Result<Self, ReadError> {
        let text = text.trim_start_matches('\u{feff}');
        let variables: Result<_, _> = dotenvy::from_read_iter(text.as_bytes()).collect();
        variables.map(Self).map_err(|error| {
            let line = match &error {
                dotenvy::Error::LineParse(line, _) => text.find(line.as_str()),
                _ => None,
            };
            let line = line.map(|at| text[..at].matches('\n').count() as u64 + 1);
            let allowed = "lines of the form NAME=value; put a value with blanks, quotes or $ into single quotes";
            error_at(line, "a line of another form", allowed)
        })
    }

    pub(super) fn values(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// A variable of the process, or of the file if the process has none or an empty one.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<String> {
        let of_the_process = env::var(name).ok();
        match of_the_process {
            Some(value) if !value.is_empty() => Some(value),
            unset => self.0.get(name).cloned().or(unset),
        }
    }
}

fn error_at(line: Option<u64>, found: &str, allowed: &str) -> ReadError {
    ReadError {
        file: FILE.to_owned(),
        line,
        field: "the file".to_owned(),
        found: found.to_owned(),
        allowed: allowed.to_owned(),
    }
}

impl fmt::Debug for Dotenv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dotenv").field(&self.0.keys()).finish()
    }
}
