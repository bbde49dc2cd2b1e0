//! Collects the configuration sources of the process: environment, working directory, files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fmt, fs, io};

use clap::error::Result;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use gavel_reading::ReadError;

use super::read::Origin;
use super::read::Sources;
use super::{CONFIG_FILE, Config, ConfigErrors, Resolved, SETTINGS, Setting};

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
        let file = find_file(&flags, &environment, &dotenv).map_err(|error| ConfigErrors(vec![error]))?;
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

fn find_file(
    flags: &BTreeMap<&'static str, String>,
    environment: &BTreeMap<String, String>,
    dotenv: &Dotenv,
) -> Result<Option<(PathBuf, String)>, ReadError> {
    let variable = "GAVEL_CONFIG";
    let named = [
        (flags.get(CONFIG_FILE), Origin::flag("--config")),
        (environment.get(variable), Origin::environment(variable)),
        (dotenv.values().get(variable), Origin::dotenv(variable)),
    ];
    let mut named = named.into_iter().filter_map(|(path, origin)| Some((path?, origin)));
    let Some((path, origin)) = named.find(|(path, _)| !path.is_empty()) else {
        let found = |text| Some((PathBuf::from(DEFAULT_FILE), text));
        return match read_here(DEFAULT_FILE) {
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

/// The variable of the process that lists the trusted directories, separated as in `PATH`.
pub(super) const TRUST: &str = "GAVEL_TRUST";

/// Why a file of the working directory is refused, and what to do.
const REMEDY: &str = "gavel uses this file only in a directory that you trust: set GAVEL_TRUST=\"$PWD\" in your \
                                 environment if it is yours, else run gavel in another one";

/// Larger files of a directory that is not trusted are not read.
const MOST: u64 = 1 << 20;

/// The text of a file of the working directory, which another person may have put there. In a directory that is not
/// trusted it must be small and regular: a link to a device would never end.
fn read_here(file: &str) -> io::Result<String> {
    let about = fs::metadata(file)?;
    let is_small = about.is_dir() || (about.is_file() && about.len() <= MOST);
    if !is_small && !is_trusted() {
        return Err(io::Error::other(format!(
            "it is no file of at most 1 MiB, and {REMEDY}"
        )));
    }
    fs::read_to_string(file)
}

/// Whether the working directory is trusted: neither a parent of it counts, nor a relative path, which would be every
/// directory.
fn is_trusted() -> bool {
    let here = Path::new(".").canonicalize();
    let is_here = |path: &Path| {
        path.canonicalize()
            .is_ok_and(|path| here.as_ref().is_ok_and(|here| path == *here))
    };
    env::var_os(TRUST).is_some_and(|listed| env::split_paths(&listed).any(|path| path.is_absolute() && is_here(&path)))
}

/// The variables of a `.env` file. Their values can be secrets, so `Debug` prints only the names.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Dotenv(BTreeMap<String, String>);

/// Path of the file, in the working directory.
const DOTENV_FILE: &str = ".env";

impl Dotenv {
    /// Reads the file in the working directory; returns no variables when the file does not exist, or is another
    /// program's in a directory that is not trusted.
    ///
    /// # Errors
    /// The file cannot be read, or a line is not of the form `NAME=value`; it has settings of gavel, and the directory is
    /// not trusted.
    pub fn read() -> Result<Self, ConfigErrors> {
        let (found, allowed) = match read_here(DOTENV_FILE) {
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
        file: DOTENV_FILE.to_owned(),
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

/// Settings that may be given on the command line. The other settings and every secret are given in the environment or
/// in gavel.toml: other users can see a command line.
#[derive(Clone, Debug, Default)]
pub struct Flags(BTreeMap<&'static str, String>);

const HEADING: &str = "Settings (more in the environment and gavel.toml: gavel config --reference)";

impl Flags {
    /// The values that were given, by key.
    pub fn values(&self) -> BTreeMap<&'static str, String> {
        self.0.clone()
    }
}

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        let args = SETTINGS.iter().filter_map(|setting| {
            let (flag, value) = setting.flag?;
            let (about, default) = (
                setting.about.trim_end_matches('.'),
                setting.default.unwrap_or(setting.absent),
            );
            let help = format!("{about} [env: {}] [default: {default}]", setting.variable());
            let long = flag.trim_start_matches('-');
            let arg = Arg::new(setting.key)
                .long(long)
                .value_name(value)
                .help(help)
                .help_heading(HEADING);
            Some(arg.global(true))
        });
        command.args(args)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self> {
        let given = SETTINGS.iter().filter(|setting| setting.flag.is_some());
        let given = given.filter_map(|setting| Some((setting.key, matches.get_one::<String>(setting.key)?.clone())));
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<()> {
        self.0.extend(Self::from_arg_matches(matches)?.0);
        Ok(())
    }
}
