//! The texts that are built in, with their values.

use std::sync::LazyLock;

use super::replies::Templates;
use super::texts::Text;

static BUILT_IN: LazyLock<Templates> = LazyLock::new(Templates::built_in);

impl Text {
    /// The text with these values, by name.
    #[must_use]
    pub fn with(self, values: &[(&str, &str)]) -> String {
        let find = |name: &str| {
            let found = values.iter().find(|(known, _)| *known == name);
            Some(found.map_or_else(String::new, |(_, value)| (*value).to_owned()))
        };
        let rendered = BUILT_IN.texts.get(&self).map(|template| template.render(find));
        // Callers cut values before they become longer than a text may be.
        rendered.and_then(Result::ok).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R-16, C-FR-013: texts about runs contain no codes, no principals and no bracketed plurals.
    #[test]
    fn every_text_is_for_people() {
        for text in Text::ALL {
            let values: Vec<_> = text.values().iter().map(|name| (*name, "VALUE")).collect();
            let said = text.with(&values);
            assert!(said.len() > 5, "{text:?}: {said}");
            assert_eq!(
                said.matches("VALUE").count(),
                values.len(),
                "{text:?} names all its values: {said}"
            );
            for jargon in ["${", "(s)", "service:", "user:", "_limit", "in_doubt", "null", "HTTP"] {
                assert!(!said.contains(jargon), "{text:?}: {said}");
            }
        }
    }
}
