//! What looks like something else (Unicode UTS #39), in words for an approver.

use unicode_script::{Script, UnicodeScript};
use unicode_security::MixedScript;
use unicode_security::confusable_detection::skeleton;

use crate::domain::definition::quoted;

/// Of a domain in its ASCII form.
pub(super) fn in_domain(ascii: &str) -> Vec<String> {
    if !ascii.split('.').any(|label| label.starts_with("xn--")) {
        return Vec::new();
    }
    let (read, _) = idna::domain_to_unicode(ascii);
    let mut told = vec![format!(
        "the domain {} has letters outside ASCII; in plain letters it is {ascii}",
        quoted(&read)
    )];
    for label in read.split('.') {
        told.extend(in_word(label, "in the domain"));
    }
    told
}

/// Of a display name, word by word: names of any script are common, words of two are not.
pub(super) fn in_name(name: &str) -> Vec<String> {
    let words = name.split(|c: char| !c.is_alphanumeric());
    let mixed = words.filter(|word| !word.is_single_script());
    mixed.flat_map(|word| in_word(word, "in the display name")).collect()
}

fn in_word(word: &str, place: &str) -> Vec<String> {
    if word.is_ascii() {
        return Vec::new();
    }
    let mut told = Vec::new();
    if !word.is_single_script() {
        told.push(format!(
            "{} {place} mixes letters of {}",
            quoted(word),
            scripts(word).join(" and ")
        ));
    }
    let looks = looks_like(word);
    if looks.is_ascii() {
        told.push(format!(
            "{} {place} looks like {}, and is another word",
            quoted(word),
            quoted(&looks)
        ));
    }
    told
}

/// With each letter outside ASCII replaced by the one it looks like.
fn looks_like(word: &str) -> String {
    let mut looks = String::with_capacity(word.len());
    for c in word.chars() {
        if c.is_ascii() {
            looks.push(c);
        } else {
            looks.extend(skeleton(c.encode_utf8(&mut [0; 4])));
        }
    }
    looks
}

fn scripts(word: &str) -> Vec<&'static str> {
    let mut names = Vec::new();
    for script in word.chars().map(|c| c.script()) {
        let name = script.full_name();
        if !matches!(script, Script::Common | Script::Inherited) && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(label: &str) -> String {
        in_word(label, "here").join("; ")
    }

    #[test]
    fn a_mixed_word_names_its_scripts_and_what_it_looks_like() {
        assert_eq!(
            told("p\u{430}ypal"),
            "\"p\u{430}ypal\" here mixes letters of Latin and Cyrillic; \"p\u{430}ypal\" here looks like \"paypal\", and is another word"
        );
    }

    #[test]
    fn a_word_of_one_script_that_looks_latin_is_named() {
        // Cyrillic throughout.
        assert_eq!(
            told("\u{430}\u{440}\u{440}\u{4cf}\u{435}"),
            "\"\u{430}\u{440}\u{440}\u{4cf}\u{435}\" here looks like \"apple\", and is another word"
        );
    }

    #[test]
    fn words_of_one_script_are_told_of_only_where_they_look_latin() {
        for label in ["bücher", "пример", "例え", "ελλάδα", "plain", "日本の"] {
            assert_eq!(told(label), "", "{label}");
        }
        assert_eq!(in_domain("example.org"), Vec::<String>::new());
        assert_eq!(in_domain("xn--bcher-kva.example").len(), 1);
        assert!(in_name("Jürgen Öztürk").is_empty() && in_name("安 李").is_empty());
        assert_eq!(in_name("B\u{43e}ss").len(), 2);
    }
}
