//! Merges the sources (flags > environment > `.env` > `gavel.toml` > defaults) and reads settings from the result.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use gavel_reading::{At, Content, Errors, File, Node, Parser, ReadError, Values, nearest};
use serde::{Serialize, Serializer};

use super::load::Dotenv;
use super::secret::{shown, shown_by};
use super::{CONFIG_FILE, Config, Effective, Provider, Resolved, SETTINGS, Setting, find, load};
use crate::adapters::demo;

/// Variables that begin with `GAVEL_` and are not settings: the key of `gavel chat --server`, the trusted directories, and
/// variables of the project's own tests and checks.
const OTHER_VARIABLES: &[&str] = &[
    "GAVEL_API_KEY",
    "GAVEL_API_KEY_FILE",
    load::TRUST,
    "GAVEL_BIN",
    "GAVEL_SHARED",
];

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

/// The origin of a variable.
type OriginOf = fn(&str) -> Origin;

/// The value of a setting from one source.
struct Given {
    node: Node,
    origin: Origin,
}

/// The merged values, from which a [`Config`] is read.
pub(super) struct Read<'a> {
    given: BTreeMap<&'static str, Given>,
    environment: BTreeMap<String, String>,
    dotenv: Dotenv,
    read_file: &'a dyn Fn(&Path) -> io::Result<String>,
    errors: RefCell<Errors>,
    warnings: RefCell<Vec<String>>,
}

impl Values for Read<'_> {
    fn get<P: Parser>(&self, key: &'static str, parser: P) -> Option<P::Value> {
        let given = self.given.get(key)?;
        let setting = find(key)?;
        let place = given.origin.place();
        let at = At::root(&self.errors, &place, &given.node)
            .named(key)
            .shown_by(shown_by(setting.secrecy));
        let Some(file) = setting.file else {
            return parser.parse(&at);
        };
        // A relative path in gavel.toml is relative to that file.
        let named = given.node.scalar().unwrap_or_default();
        let path = match given.origin.file().and_then(Path::parent) {
            Some(directory) if !named.is_empty() => directory.join(named.trim()),
            _ => PathBuf::from(named.trim()),
        };
        let node = Node {
            line: given.node.line,
            content: Content::Text(path.display().to_string()),
        };
        let value = parser.parse(&at.holding(&node))?;
        match (self.read_file)(&path) {
            // Reading a directory as a file fails with an error of its own kind, which is allowed here.
            Err(error) if file == File::Readable && error.kind() != io::ErrorKind::IsADirectory => {
                at.error(
                    format!("{}, which cannot be read: {error}", path.display()),
                    parser.allowed(),
                );
                None
            }
            _ => Some(value),
        }
    }
}

impl<'a> Read<'a> {
    /// Merges the sources. Errors in single values are kept in the result.
    ///
    /// # Errors
    /// `gavel.toml` is not valid TOML.
    pub(super) fn new(sources: Sources<'a>) -> Result<Self, Vec<ReadError>> {
        let mut read = Self {
            given: BTreeMap::new(),
            environment: sources.environment,
            dotenv: sources.dotenv,
            read_file: sources.read_file,
            errors: RefCell::default(),
            warnings: RefCell::default(),
        };
        for setting in SETTINGS.iter() {
            if let Some(node) = setting.default_node() {
                read.give(setting, node, Origin::default());
            }
        }
        if let Some((path, text)) = &sources.file {
            let root = Node::parse_toml(text).map_err(|error| {
                vec![ReadError {
                    file: path.display().to_string(),
                    line: error.line,
                    field: "the file".to_owned(),
                    found: format!("text that is not TOML ({})", error.message),
                    allowed: "TOML".to_owned(),
                }]
            })?;
            let found = Origin::default_because("it is in the working directory");
            let config = find(CONFIG_FILE).into_iter();
            config.for_each(|config| read.give(config, text_node(&path.display().to_string()), found.clone()));
            read.table(path, &root, "");
        }
        let (dotenv, environment) = (read.dotenv.values().clone(), read.environment.clone());
        let origins: [(_, OriginOf); 2] = [(dotenv, Origin::dotenv), (environment, Origin::environment)];
        for (variables, origin) in origins {
            for setting in SETTINGS.iter() {
                read.variables_of(setting, &variables, origin);
            }
            read.warn_of_unknown(&variables, origin);
        }
        for (key, text) in &sources.flags {
            if let Some((setting, (flag, _))) = find(key).and_then(|setting| Some((setting, setting.flag?))) {
                read.give(setting, text_node(text), Origin::flag(flag));
            }
        }
        Ok(read)
    }

    fn give(&mut self, setting: &'static Setting, node: Node, origin: Origin) {
        self.given.insert(setting.key, Given { node, origin });
    }

    /// The keys of a table of `gavel.toml`. A key that is no setting is an error.
    fn table(&mut self, file: &Path, table: &Node, prefix: &str) {
        let Content::Map(entries) = &table.content else { return };
        for (name, node) in entries {
            let key = format!("{prefix}{}", name.name);
            let origin = Origin::line(file, name.line);
            let by_file = key
                .strip_suffix("_file")
                .and_then(find)
                .filter(|setting| setting.in_file());
            let section = format!("{key}.");
            if let Some(setting) = find(&key).filter(|setting| setting.key != CONFIG_FILE) {
                self.give(setting, node.clone(), origin);
            } else if let Some(setting) = by_file {
                let alone = entries
                    .iter()
                    .all(|(other, _)| other.name != name.name.trim_end_matches("_file"));
                let directory = file.parent().unwrap_or(Path::new(""));
                let path = match &node.content {
                    Content::Text(path) => Some(directory.join(path)),
                    _ => None,
                };
                match path.filter(|_| alone) {
                    Some(path) => self.secret_in(setting, &path, &origin),
                    None if alone => {
                        self.report(&key, &origin, &node.found(), "the path of a file that holds the secret")
                    }
                    None => self.report(&key, &origin, &format!("{} too", setting.key), "one of the two"),
                }
            } else if SETTINGS.iter().any(|setting| setting.key.starts_with(&section)) {
                match &node.content {
                    Content::Map(_) => self.table(file, node, &section),
                    _ => self.report(
                        &key,
                        &origin,
                        &node.found(),
                        &format!("[{key}], with its settings below it"),
                    ),
                }
            } else {
                self.report(&key, &origin, "an unknown setting", &known_instead(&key));
            }
        }
    }

    /// Gives a setting by its variables, of which the first counts, or by the file that `NAME_FILE` names.
    fn variables_of(&mut self, setting: &'static Setting, variables: &BTreeMap<String, String>, origin: OriginOf) {
        // A variable that is set and empty counts as not set.
        let set = |name: &str| variables.get(name).filter(|value| !value.is_empty());
        let mut used: Option<(&str, &String)> = None;
        for name in &setting.environment {
            let by_file = format!("{name}_FILE");
            let path = set(&by_file).filter(|_| setting.in_file() && used.is_none());
            match (set(name), path) {
                (Some(_), Some(path)) => {
                    let found = format!("{by_file} = {path:?} too");
                    self.report(setting.key, &origin(name), &found, "one of the two");
                }
                (Some(value), None) => match used {
                    Some((first, other)) if value != other => {
                        self.warn(&format!("{first} and {name} are both set and differ; {first} is used"))
                    }
                    Some(_) => {}
                    None => {
                        used = Some((name, value));
                        self.give(setting, text_node(value), origin(name));
                    }
                },
                (None, Some(path)) => {
                    used = Some((name, path));
                    self.secret_in(setting, Path::new(path), &origin(&by_file));
                }
                (None, None) => {}
            }
        }
    }

    /// Gives the secret in a file, without the trailing line break that editors and `echo` add.
    fn secret_in(&mut self, setting: &'static Setting, path: &Path, named_by: &Origin) {
        let problem = match (self.read_file)(path) {
            Ok(text) => match text.trim_end_matches(['\r', '\n']) {
                "" => "is empty".to_owned(),
                secret => return self.give(setting, text_node(secret), Origin::named_file(path, named_by)),
            },
            Err(error) => format!("cannot be read: {error}"),
        };
        let found = format!("{}, which {problem}", path.display());
        self.report(
            setting.key,
            named_by,
            &found,
            "the path of a file that holds the secret",
        );
    }

    /// An unknown variable that begins with `GAVEL_` is usually a typing error.
    fn warn_of_unknown(&self, variables: &BTreeMap<String, String>, origin: OriginOf) {
        let known = || {
            SETTINGS
                .iter()
                .flat_map(|setting| setting.environment.iter().map(move |name| (setting, name)))
        };
        for name in variables.keys().filter(|name| name.starts_with("GAVEL_")) {
            let is_known = known().any(|(setting, variable)| {
                name == variable || setting.in_file() && name.strip_suffix("_FILE") == Some(variable)
            });
            if !is_known && !OTHER_VARIABLES.contains(&name.as_str()) {
                let meant = nearest(name, known().map(|(_, variable)| variable.as_str()));
                let meant = meant
                    .map(|meant| format!("; did you mean {meant}?"))
                    .unwrap_or_default();
                self.warn(&format!("{}: gavel has no such setting{meant}", origin(name)));
            }
        }
    }

    /// The value of a setting that another setting requires. If it is absent, that is an error; if it is invalid, it has
    /// one already.
    pub(super) fn needed<T>(&self, key: &'static str, value: Option<T>, because: &str) -> Option<T> {
        let setting = find(key)?;
        if value.is_none() && !self.is_given(key) {
            let allowed = format!(
                "{} (environment {}), because {because}",
                setting.allowed,
                setting.variable()
            );
            self.error(key, "nothing", &allowed);
        }
        value
    }

    /// Reports a setting where it was given, or alone if it was not.
    pub(super) fn error(&self, key: &str, found: &str, allowed: &str) {
        let given = self.given.get(key).filter(|given| !given.origin.is_default());
        let origin = given.map_or_else(|| Origin::new(String::new()), |given| given.origin.clone());
        self.report(key, &origin, found, allowed);
    }

    fn report(&self, key: &str, origin: &Origin, found: &str, allowed: &str) {
        self.errors.borrow_mut().push(ReadError {
            file: origin.place(),
            line: origin.line_number(),
            field: key.to_owned(),
            found: found.to_owned(),
            allowed: allowed.to_owned(),
        });
    }

    pub(super) fn warn(&self, warning: &str) {
        self.warnings.borrow_mut().push(warning.to_owned());
    }

    /// The value as it may be shown.
    pub(super) fn shown(&self, key: &str) -> String {
        let shown = self
            .given
            .get(key)
            .zip(find(key))
            .map(|(given, setting)| shown(setting, &given.node));
        shown.unwrap_or_default()
    }

    /// Where the value was given.
    pub(super) fn origin(&self, key: &str) -> Origin {
        self.given
            .get(key)
            .map_or_else(Origin::default, |given| given.origin.clone())
    }

    /// Whether the setting was given in any source.
    pub(super) fn is_given(&self, key: &str) -> bool {
        self.given.get(key).is_some_and(|given| !given.origin.is_default())
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

    /// The configuration, if there were no errors.
    pub(super) fn finish(self, config: Option<Config>) -> Result<Resolved, Vec<ReadError>> {
        let mut origins: Vec<_> = SETTINGS.iter().map(|setting| self.effective(setting)).collect();
        if matches!(&config, Some(config) if matches!(config.model.provider, Provider::Demo { by_name: false })) {
            for effective in origins.iter_mut().filter(|effective| effective.key == "gemini.model") {
                effective.value = Some(demo::NAME.to_owned());
                effective.origin = Origin::default_because("there are no credentials for a real model");
            }
        }
        let errors = self.errors.into_inner();
        match config {
            Some(config) if errors.is_empty() => Ok(Resolved {
                config,
                origins,
                warnings: self.warnings.into_inner(),
            }),
            None if errors.is_empty() => unreachable!("a value is missing, and no error explains it"),
            _ => Err(errors.into_vec("the configuration")),
        }
    }

    fn effective(&self, setting: &'static Setting) -> Effective {
        let given = self.given.get(setting.key);
        Effective {
            key: setting.key,
            environment: setting.variable(),
            value: given.map(|given| shown(setting, &given.node)),
            origin: self.origin(setting.key),
        }
    }
}

fn text_node(text: &str) -> Node {
    Node::bare(Content::Text(text.trim().to_owned()))
}

fn known_instead(key: &str) -> String {
    let last = |key: &'static str| key.rsplit('.').next().unwrap_or(key);
    let own = key.rsplit('.').next().unwrap_or(key);
    let known = || {
        SETTINGS
            .iter()
            .map(|setting| setting.key)
            .filter(|known| *known != CONFIG_FILE)
    };
    let meant = nearest(key, known()).or_else(|| known().find(|known| nearest(own, [last(known)]).is_some()));
    match meant {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => "the settings that `gavel config --reference` lists".to_owned(),
    }
}

/// Where a value came from, as text: `flag --listen`, `environment GAVEL_LISTEN`, `.env GAVEL_LISTEN`, `gavel.toml:3`,
/// `default`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    words: String,
    /// The file and the line, if it is `gavel.toml`.
    line: Option<(PathBuf, u64)>,
}

impl Origin {
    const DEFAULT: &'static str = "default";

    pub(super) fn flag(flag: &str) -> Self {
        Self::new(format!("flag {flag}"))
    }

    pub(super) fn environment(variable: &str) -> Self {
        Self::new(format!("environment {variable}"))
    }

    /// A variable of the file `.env`.
    pub(super) fn dotenv(variable: &str) -> Self {
        Self::new(format!(".env {variable}"))
    }

    /// A secret that was read from the file that `variable` names.
    fn named_file(path: &Path, named_by: &Self) -> Self {
        Self::new(format!("{}, named by {named_by}", path.display()))
    }

    /// A line of `gavel.toml`.
    fn line(file: &Path, line: u64) -> Self {
        Self {
            words: format!("{}:{line}", file.display()),
            line: Some((file.to_owned(), line)),
        }
    }

    fn default() -> Self {
        Self::new(Self::DEFAULT.to_owned())
    }

    /// A default with its reason.
    fn default_because(reason: &str) -> Self {
        Self::new(format!("{}: {reason}", Self::DEFAULT))
    }

    fn new(words: String) -> Self {
        Self { words, line: None }
    }

    /// Whether the value is a default, not given by the user.
    pub fn is_default(&self) -> bool {
        self.words.starts_with(Self::DEFAULT)
    }

    /// The `gavel.toml` that contains the value.
    fn file(&self) -> Option<&Path> {
        self.line.as_ref().map(|(file, _)| file.as_path())
    }

    /// The file without the line, or what else has the value.
    fn place(&self) -> String {
        self.file()
            .map_or_else(|| self.words.clone(), |file| file.display().to_string())
    }

    /// The line of `gavel.toml`.
    fn line_number(&self) -> Option<u64> {
        self.line.as_ref().map(|(_, line)| *line)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.words)
    }
}
