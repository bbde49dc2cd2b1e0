//! Single values of an entry, each with its position.

use std::cell::RefCell;
use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Map, Value};

use super::super::PASSED_ON;
use super::super::expand::expand;
use super::{Reader, escape};
use crate::domain::definition::nearest::nearest;

impl Reader<'_> {
    pub(super) fn only(&mut self, object: &Map<String, Value>, known: &[&str], at: &str) {
        for key in object.keys().filter(|key| !known.contains(&key.as_str())) {
            let allowed = match nearest(key, known.iter().copied()) {
                Some(known) => format!("did you mean `{known}`?"),
                None => format!("allowed: {}", known.join(", ")),
            };
            let message = format!("unknown key; {allowed}");
            self.invalid(&format!("{at}/{}", escape(key)), message);
        }
    }

    pub(super) fn string(&mut self, object: &Map<String, Value>, key: &str, at: &str) -> Option<String> {
        match object.get(key)? {
            Value::String(text) => Some(text.clone()),
            _ => {
                self.invalid(&format!("{at}/{key}"), "must be a string");
                None
            }
        }
    }

    pub(super) fn bool(&mut self, object: &Map<String, Value>, key: &str, at: &str) -> Option<bool> {
        let value = object.get(key)?;
        if value.as_bool().is_none() {
            self.invalid(&format!("{at}/{key}"), "must be true or false");
        }
        value.as_bool()
    }

    pub(super) fn millis(&mut self, object: &Map<String, Value>, key: &str, at: &str) -> Option<Duration> {
        let value = object.get(key)?;
        match value.as_u64() {
            Some(ms @ 1..=86_400_000) => Some(Duration::from_millis(ms)),
            _ => {
                self.invalid(
                    &format!("{at}/{key}"),
                    format!("{value}; allowed: 1 to 86400000 milliseconds"),
                );
                None
            }
        }
    }

    pub(super) fn strings(&mut self, object: &Map<String, Value>, key: &str, at: &str) -> Option<Vec<String>> {
        let value = object.get(key)?;
        let strings: Option<Vec<String>> = value
            .as_array()
            .and_then(|items| items.iter().map(|item| item.as_str().map(str::to_owned)).collect());
        if strings.is_none() {
            self.invalid(&format!("{at}/{key}"), "must be an array of strings");
        }
        strings
    }

    pub(super) fn pairs(&mut self, object: &Map<String, Value>, key: &str, at: &str) -> Vec<(String, String)> {
        let Some(value) = object.get(key) else {
            return Vec::new();
        };
        let Value::Object(pairs) = value else {
            self.invalid(&format!("{at}/{key}"), "must be an object of strings");
            return Vec::new();
        };
        let mut out = Vec::new();
        for (name, value) in pairs {
            match value {
                Value::String(text) => out.push((name.clone(), text.clone())),
                _ => self.invalid(&format!("{at}/{key}/{}", escape(name)), "must be a string"),
            }
        }
        out
    }

    pub(super) fn expanded(&mut self, object: &Map<String, Value>, key: &str, at: &str) -> Option<String> {
        let text = self.string(object, key, at)?;
        self.expand(&text, &format!("{at}/{key}"))
    }

    pub(super) fn expand(&mut self, text: &str, at: &str) -> Option<String> {
        let (env, values) = (self.env, RefCell::default());
        let noting = |name: &str| {
            let value = env(name)?;
            if !PASSED_ON.contains(&name) {
                Vec::push(&mut values.borrow_mut(), (name.to_owned(), SecretString::from(&*value)));
            }
            Some(value)
        };
        let expanded = expand(text, &noting);
        self.expanded.append(&mut values.into_inner());
        match expanded {
            Ok(text) => Some(text),
            Err(error) => {
                self.invalid(at, error.to_string());
                None
            }
        }
    }
}
