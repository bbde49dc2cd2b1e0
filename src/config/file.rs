//! `gavel.toml`: its values with their lines. A key that is not a setting is an error.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use figment::value::{Dict, Value};
use toml_edit::{ImDocument, Item, TableLike};

use super::error::ConfigError;
use super::given::{Given, secret_in};
use super::origin::Origin;
use super::settings::{CONFIG_FILE, SETTINGS, Setting};
use crate::domain::definition::nearest::nearest;

/// The values of the file.
#[derive(Default)]
pub(super) struct FileValues {
    pub(super) given: Vec<Given>,
    /// The line of every key, by its dotted path; elements of lists by their index.
    pub(super) lines: BTreeMap<String, usize>,
}

struct Walk<'a> {
    path: &'a Path,
    text: &'a str,
    read_file: &'a dyn Fn(&Path) -> io::Result<String>,
    errors: &'a mut Vec<ConfigError>,
    found: FileValues,
}

/// Reads the text of the file. Errors in single keys go to `errors`.
///
/// # Errors
/// The text is not valid TOML.
pub(super) fn values(
    path: &Path,
    text: &str,
    read_file: &dyn Fn(&Path) -> io::Result<String>,
    errors: &mut Vec<ConfigError>,
) -> Result<FileValues, ConfigError> {
    let document = ImDocument::parse(text).map_err(|error| ConfigError {
        key: "the file".to_owned(),
        value: None,
        place: Some(Origin::line(path, line_at(text, error.span().map_or(0, |span| span.start))).to_string()),
        problem: format!("is not valid TOML: {}", error.message().replace('\n', ", ")),
    })?;
    let mut walk = Walk {
        path,
        text,
        read_file,
        errors,
        found: FileValues::default(),
    };
    walk.table(document.as_table(), "");
    Ok(walk.found)
}

impl Walk<'_> {
    fn table(&mut self, table: &dyn TableLike, prefix: &str) {
        for (name, item) in table.iter() {
            let key = if prefix.is_empty() {
                name.to_owned()
            } else {
                format!("{prefix}.{name}")
            };
            let start = table
                .key(name)
                .and_then(toml_edit::Key::span)
                .or_else(|| item.span())
                .map_or(0, |span| span.start);
            let origin = Origin::line(self.path, self.note(&key, start));
            if let Some(setting) = SETTINGS.iter().find(|setting| setting.key == key && key != CONFIG_FILE) {
                self.setting(setting, item, origin);
            } else if let Some(setting) = by_file(&key) {
                self.secret_by_file(setting, table.contains_key(last(setting.key)), item, &origin);
            } else if SETTINGS
                .iter()
                .any(|setting| setting.key.starts_with(&format!("{key}.")))
            {
                match item.as_table_like() {
                    Some(inner) => self.table(inner, &key),
                    None => self.error(
                        &key,
                        &origin,
                        format!("is a section; write [{key}] and its settings below it"),
                    ),
                }
            } else {
                self.error(&key, &origin, unknown(&key));
            }
        }
    }

    fn setting(&mut self, setting: &'static Setting, item: &Item, origin: Origin) {
        let value = self.value(item, setting.key);
        self.found.given.push(Given {
            key: setting.key,
            value,
            origin,
        });
    }

    fn secret_by_file(&mut self, setting: &'static Setting, twice: bool, item: &Item, origin: &Origin) {
        let name = last(setting.key);
        let key = format!("{}_file", setting.key);
        if twice {
            return self.error(&key, origin, format!("{name} is also given; keep one of the two"));
        }
        let Some(named) = item.as_str() else {
            return self.error(&key, origin, "give the path of a file that holds the secret".to_owned());
        };
        let path = self.path.parent().unwrap_or(Path::new("")).join(named);
        match secret_in(&path, self.read_file) {
            Ok(text) => self.found.given.push(Given {
                key: setting.key,
                value: Value::from(text),
                origin: Origin::named_file(&path, origin),
            }),
            Err(problem) => self.error(&key, origin, format!("{} {problem}", path.display())),
        }
    }

    /// Converts the value to figment's type. Records the lines of elements inside lists.
    fn value(&mut self, item: &Item, key: &str) -> Value {
        if let Some(text) = item.as_str() {
            return Value::from(text);
        }
        if let Some(number) = item.as_integer() {
            return Value::from(number);
        }
        if let Some(number) = item.as_float() {
            return Value::from(number);
        }
        if let Some(yes) = item.as_bool() {
            return Value::from(yes);
        }
        if let Some(table) = item.as_table_like() {
            return Value::from(self.dict(table, key));
        }
        if let Some(tables) = item.as_array_of_tables() {
            let tables = tables.iter().enumerate();
            let values: Vec<Value> = tables
                .map(|(n, table)| {
                    let key = format!("{key}.{n}");
                    self.note(&key, table.span().map_or(0, |span| span.start));
                    Value::from(self.dict(table, &key))
                })
                .collect();
            return Value::from(values);
        }
        if let Some(array) = item.as_array() {
            let values: Vec<Value> = array
                .iter()
                .enumerate()
                .map(|(n, value)| {
                    let key = format!("{key}.{n}");
                    self.note(&key, value.span().map_or(0, |span| span.start));
                    self.value(&Item::Value(value.clone()), &key)
                })
                .collect();
            return Value::from(values);
        }
        // The remaining case is a date or a time, which no setting accepts.
        Value::from(item.as_datetime().map(ToString::to_string).unwrap_or_default())
    }

    fn dict(&mut self, table: &dyn TableLike, prefix: &str) -> Dict {
        let mut dict = Dict::new();
        for (name, item) in table.iter() {
            let key = format!("{prefix}.{name}");
            if let Some(span) = table.key(name).and_then(toml_edit::Key::span) {
                self.note(&key, span.start);
            }
            dict.insert(name.to_owned(), self.value(item, &key));
        }
        dict
    }

    fn note(&mut self, key: &str, start: usize) -> usize {
        let line = line_at(self.text, start);
        self.found.lines.insert(key.to_owned(), line);
        line
    }

    fn error(&mut self, key: &str, origin: &Origin, problem: String) {
        self.errors.push(ConfigError {
            key: key.to_owned(),
            value: None,
            place: Some(origin.to_string()),
            problem,
        });
    }
}

/// The secret setting whose file `key` names.
fn by_file(key: &str) -> Option<&'static Setting> {
    let key = key.strip_suffix("_file")?;
    SETTINGS.iter().find(|setting| setting.key == key && setting.in_file())
}

fn last(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

fn unknown(key: &str) -> String {
    let known = || {
        SETTINGS
            .iter()
            .map(|setting| setting.key)
            .filter(|known| *known != CONFIG_FILE)
    };
    let meant = nearest(key, known()).or_else(|| known().find(|known| nearest(last(key), [last(known)]).is_some()));
    match meant {
        Some(meant) => format!("there is no such setting; did you mean {meant}?"),
        None => "there is no such setting; `gavel config --reference` lists all".to_owned(),
    }
}

fn line_at(text: &str, byte: usize) -> usize {
    let before = text.as_bytes().iter().take(byte);
    1 + before.filter(|byte| **byte == b'\n').count()
}
