//! All recipients of a call, as one canonical set.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Address;
use crate::domain::argument_path::ArgumentPath;
use crate::domain::definition::quoted;

/// The most recipients of a call, unless the policy sets another limit.
pub const MOST_RECIPIENTS: usize = 50;

/// The most errors that are reported at once.
const MOST_ERRORS: usize = 8;

/// Canonical addresses by the path of their argument. Order and display names have no effect. No list is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Recipients(BTreeMap<String, BTreeSet<String>>);

impl Recipients {
    /// All recipients, each once, sorted.
    #[must_use]
    pub fn all(&self) -> BTreeSet<&str> {
        self.0.values().flatten().map(String::as_str).collect()
    }

    /// The recipients of each argument, sorted by path.
    pub fn by_argument(&self) -> impl ExactSizeIterator<Item = (&str, &BTreeSet<String>)> {
        self.0.iter().map(|(path, addresses)| (path.as_str(), addresses))
    }

    /// Whether there are no recipients.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, path: &ArgumentPath, address: Address) {
        self.0.entry(path.to_string()).or_default().insert(address.canonical);
    }
}

/// Recipients that passed the checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// The set.
    pub recipients: Recipients,
    /// Warnings for the approver, each with the location that it refers to.
    pub warnings: Vec<String>,
}

/// Collects the recipients at `paths`: at most `most`, and at least one if `needed`.
///
/// # Errors
/// Up to 8 errors, each with the location, the value and what is allowed.
pub fn recipients(
    paths: &[ArgumentPath],
    arguments: &Value,
    most: usize,
    needed: impl FnOnce() -> bool,
) -> Result<Checked, Vec<String>> {
    let mut texts = Vec::new();
    for path in paths {
        let found = path.texts(arguments).map_err(|error| vec![error])?;
        texts.extend(found.into_iter().map(|(place, text)| (path, place, text)));
    }
    if texts.len() > most {
        let found = texts.len();
        return Err(vec![format!(
            "{}: {found} recipients; allowed: at most {most} in all",
            joined(paths)
        )]);
    }
    let (mut recipients, mut errors, mut warnings) = (Recipients::default(), Vec::new(), Vec::new());
    for (path, place, text) in texts {
        match Address::parse(text) {
            Ok(address) => {
                for warning in &address.warnings {
                    let warning = format!("{place}: {warning}");
                    if !warnings.contains(&warning) {
                        warnings.push(warning);
                    }
                }
                recipients.add(path, address);
            }
            Err(error) if errors.len() < MOST_ERRORS => errors.push(format!("{place}: {} {error}", quoted(text))),
            Err(_) => {}
        }
    }
    if recipients.is_empty() && errors.is_empty() {
        if needed() {
            return Err(vec![format!("{}: no recipient; allowed: at least one", joined(paths))]);
        }
        warnings.push("the call names no recipient".to_owned());
    }
    if errors.is_empty() {
        Ok(Checked { recipients, warnings })
    } else {
        Err(errors)
    }
}

/// `/to, /cc, /bcc`
fn joined(paths: &[ArgumentPath]) -> String {
    let places: Vec<_> = paths
        .iter()
        .map(|path| format!("/{}", path.to_string().replace('.', "/").replace("[]", "")))
        .collect();
    places.join(", ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn paths() -> Vec<ArgumentPath> {
        ["to", "cc", "bcc"]
            .map(|path| ArgumentPath::parse(path).unwrap())
            .into()
    }

    fn set(arguments: &Value) -> Vec<String> {
        let checked = recipients(&paths(), arguments, 3, || true).unwrap();
        checked.recipients.all().into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn the_set_is_sorted_without_names_and_has_each_once() {
        let arguments = json!({"to": ["Zoe <zoe@x.org>", "ann@X.org"], "cc": "ann@x.org"});
        assert_eq!(set(&arguments), ["ann@x.org", "zoe@x.org"]);
    }

    /// R-15: the argument decides which recipients are visible to the others.
    #[test]
    fn the_argument_that_contains_an_address_counts() {
        let of = |arguments| recipients(&paths(), &arguments, 3, || true).unwrap().recipients;
        let open = of(json!({"to": ["ann@x.org"], "cc": [], "bcc": ["bo@x.org"]}));
        assert_eq!(open, of(json!({"bcc": "Bo <bo@X.org>", "to": "ann@x.org"})));
        for other in [
            json!({"to": ["ann@x.org", "bo@x.org"]}),
            json!({"to": ["ann@x.org"], "cc": ["bo@x.org"]}),
            json!({"to": ["ann@x.org", "bo@x.org"], "bcc": ["bo@x.org"]}),
        ] {
            let other = of(other);
            assert_eq!(open.all(), other.all());
            assert_ne!(open, other);
        }
        let text = serde_json::to_string(&open).unwrap();
        assert_eq!(text, r#"{"bcc":["bo@x.org"],"to":["ann@x.org"]}"#);
        assert_eq!(serde_json::from_str::<Recipients>(&text).unwrap(), open);
    }

    /// R-12
    #[test]
    fn errors_name_the_place_the_value_and_what_is_allowed() {
        let errors = |arguments: Value| recipients(&paths(), &arguments, 3, || true).unwrap_err();
        let found = errors(json!({"to": ["ann@x.org", "eve"], "bcc": "a@b.org\nc"}));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].starts_with("/to/1: \"eve\" has no `@`; allowed: "),
            "{found:?}"
        );
        assert!(
            found[1].starts_with("/bcc: \"a@b.org\\nc\" holds line ends"),
            "{found:?}"
        );
        assert_eq!(
            errors(json!({"to": []})),
            ["/to, /cc, /bcc: no recipient; allowed: at least one"]
        );
        let many = json!({"to": ["a@x.org", "a@x.org"], "cc": ["b@x.org"], "bcc": ["c@x.org"]});
        assert_eq!(
            errors(many),
            ["/to, /cc, /bcc: 4 recipients; allowed: at most 3 in all"]
        );
        assert_eq!(
            recipients(&paths(), &json!({"to": vec!["eve"; 40]}), 50, || true)
                .unwrap_err()
                .len(),
            8
        );
    }

    #[test]
    fn a_call_that_may_have_none_says_that_it_has_none() {
        let checked = recipients(&paths(), &json!({}), 3, || false).unwrap();
        assert!(checked.recipients.is_empty());
        assert_eq!(checked.warnings, ["the call names no recipient"]);
    }

    #[test]
    fn a_warning_names_the_place() {
        let checked = recipients(&paths(), &json!({"to": ["ann@bücher.example"]}), 3, || true).unwrap();
        assert!(
            checked.warnings[0].starts_with("/to/0: the domain \"bücher.example\" has non-ASCII letters"),
            "{:?}",
            checked.warnings
        );
    }
}
