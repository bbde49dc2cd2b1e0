//! Texts that look like others (Unicode UTS #39), as warnings for an approver.

use std::fmt;

use unicode_script::{Script, UnicodeScript};
use unicode_security::MixedScript;
use unicode_security::confusable_detection::skeleton;

use crate::domain::definition::quoted;

/// The most look-alike words that are reported for a text.
const MOST_LOOK_ALIKES: usize = 20;

/// Warnings about a domain in its ASCII form.
pub(super) fn in_domain(ascii: &str) -> Vec<String> {
    if !ascii.split('.').any(|label| label.starts_with("xn--")) {
        return Vec::new();
    }
    let (read, _) = idna::domain_to_unicode(ascii);
    let mut reported = Vec::new();
    let looks = looks_like(&read);
    if looks.is_ascii() {
        reported.push(format!(
            "its domain is not {}, but looks like it: {}; its ASCII form is {ascii}",
            quoted(&looks),
            foreign(&read)
        ));
    } else {
        reported.push(format!(
            "the domain {} has non-ASCII letters; its ASCII form is {ascii}",
            quoted(&read)
        ));
        reported.extend(read.split('.').filter_map(|label| in_word(label, "in the domain")));
    }
    reported
}

/// Warnings about a display name, word by word: names in any script are common, but words in two scripts are not.
pub(super) fn in_name(name: &str) -> Vec<String> {
    let words = name.split(|c: char| !c.is_alphanumeric());
    let mixed = words.filter(|word| !word.is_single_script());
    mixed.filter_map(|word| in_word(word, "in the display name")).collect()
}

fn in_word(word: &str, place: &str) -> Option<String> {
    if word.is_ascii() {
        return None;
    }
    let looks = looks_like(word);
    if looks.is_ascii() {
        return Some(format!("{} {place} {}", quoted(word), unlike(word, &looks)));
    }
    let mixed = scripts(word).join(" and ");
    (!word.is_single_script()).then(|| format!("{} {place} mixes letters of {mixed}", quoted(word)))
}

/// That the word is not the ASCII word that it looks like, and by which letters it differs.
fn unlike(word: &str, looks: &str) -> String {
    format!("is not {}, but looks like it: {}", quoted(looks), foreign(word))
}

/// What the non-ASCII letters of a word are: `"а" is a letter of another alphabet (Cyrillic)`.
fn foreign(word: &str) -> String {
    let mut letters: Vec<char> = Vec::new();
    for c in word.chars().filter(|c| !c.is_ascii()) {
        if !letters.contains(&c) {
            letters.push(c);
        }
    }
    let mut alphabets = scripts(word);
    alphabets.retain(|script| *script != Script::Latin.full_name());
    let what = match (letters.len(), alphabets.len()) {
        (1, 0) => "is another letter",
        (_, 0) => "are other letters",
        (1, _) => "is a letter of another alphabet",
        (_, 1) => "are letters of another alphabet",
        _ => "are letters of other alphabets",
    };
    let letters: Vec<_> = letters.iter().map(|c| quoted(&c.to_string())).collect();
    let of = match alphabets.is_empty() {
        true => String::new(),
        false => format!(" ({})", alphabets.join(", ")),
    };
    format!("{} {what}{of}", letters.join(", "))
}

/// A word of a text that looks like a different, ASCII word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LookAlike {
    word: String,
    looks: String,
    /// Of its letters that are not Latin.
    scripts: Vec<&'static str>,
}

impl fmt::Display for LookAlike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", quoted(&self.word), unlike(&self.word, &self.looks))
    }
}

/// Words of a text whose non-ASCII letters all look like ASCII ones, each once. They are reported if they also have
/// Latin letters, are part of an address, or are the only words of their script in the text. A short word of such
/// letters is normal in a Russian letter, but not in an English one.
pub(crate) fn look_alikes(text: &str) -> Vec<LookAlike> {
    let (mut found, mut own) = (Vec::<(LookAlike, bool)>::new(), Vec::new());
    for token in text.split_whitespace().filter(|token| !token.is_ascii()) {
        let in_address = is_address(token);
        for word in token
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_ascii())
        {
            let mut scripts = scripts(word);
            let is_mixed = scripts.contains(&Script::Latin.full_name());
            scripts.retain(|script| *script != Script::Latin.full_name());
            if scripts.is_empty() {
                continue;
            }
            match looks_ascii(word) {
                None => own.extend(scripts),
                Some(looks) if found.iter().all(|(known, _)| known.word != word) => {
                    let word = word.to_owned();
                    found.push((LookAlike { word, looks, scripts }, is_mixed || in_address));
                }
                Some(_) => {}
            }
        }
        if found.len() == MOST_LOOK_ALIKES {
            break;
        }
    }
    let is_foreign = |found: &LookAlike| !found.scripts.iter().any(|script| own.contains(script));
    found.retain(|(found, is_certain)| *is_certain || is_foreign(found));
    found.into_iter().map(|(found, _)| found).collect()
}

/// Whether it is the address of a site or a mailbox.
fn is_address(token: &str) -> bool {
    let in_letters = |label: &str| label.len() > 1 && label.bytes().all(|byte| byte.is_ascii_alphabetic());
    let host = token.trim_end_matches(|c: char| !c.is_alphanumeric());
    token.contains("://") || token.contains('@') || host.rsplit_once('.').is_some_and(|(_, last)| in_letters(last))
}

/// The word in ASCII letters, if each of its letters looks like one.
fn looks_ascii(word: &str) -> Option<String> {
    let mut looks = String::with_capacity(word.len());
    for c in word.chars() {
        let before = looks.len();
        match c.is_ascii() {
            true => looks.push(c),
            false => looks.extend(skeleton(c.encode_utf8(&mut [0; 4]))),
        }
        if !looks[before..].is_ascii() {
            return None;
        }
    }
    Some(looks)
}

/// The word with each non-ASCII letter replaced by the one that it looks like.
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

    fn described(label: &str) -> String {
        in_word(label, "here").unwrap_or_default()
    }

    #[test]
    fn a_word_that_looks_latin_names_the_letters_that_are_not() {
        assert_eq!(
            described("p\u{430}ypal"),
            "\"p\u{430}ypal\" here is not \"paypal\", but looks like it: \"\u{430}\" is a letter of another alphabet (Cyrillic)"
        );
    }

    #[test]
    fn a_word_of_one_script_that_looks_latin_is_named() {
        // Cyrillic throughout.
        assert_eq!(
            described("\u{430}\u{440}\u{440}\u{4cf}\u{435}"),
            "\"\u{430}\u{440}\u{440}\u{4cf}\u{435}\" here is not \"apple\", but looks like it: \
             \"\u{430}\", \"\u{440}\", \"\u{4cf}\", \"\u{435}\" are letters of another alphabet (Cyrillic)"
        );
    }

    #[test]
    fn words_of_one_script_are_reported_only_where_they_look_latin() {
        for label in ["bücher", "пример", "例え", "ελλάδα", "plain", "日本の"] {
            assert_eq!(described(label), "", "{label}");
        }
        assert_eq!(in_domain("example.org"), Vec::<String>::new());
        assert_eq!(in_domain("xn--bcher-kva.example").len(), 1);
        assert!(in_name("Jürgen Öztürk").is_empty() && in_name("安 李").is_empty());
        assert_eq!(in_name("B\u{43e}ss").len(), 1);
        assert_eq!(
            described("\u{414}og"),
            "\"\u{414}og\" here mixes letters of Cyrillic and Latin"
        );
    }

    /// A reader needs one sentence, and in it first what the domain is not.
    #[test]
    fn a_domain_that_looks_like_another_is_said_not_to_be_it() {
        assert_eq!(
            in_domain("xn--pypal-4ve.com"),
            [
                "its domain is not \"paypal.com\", but looks like it: \"\u{430}\" is a letter of another alphabet (Cyrillic); \
              its ASCII form is xn--pypal-4ve.com"
            ]
        );
        let dotless = idna::domain_to_ascii("p\u{131}xel.com").unwrap_or_default();
        assert!(in_domain(&dotless)[0].contains("\"\u{131}\" is another letter;"));
    }

    /// A word is reported if a reader would take it for another. Texts in a language that uses these letters are not.
    #[test]
    fn look_alikes_in_texts_are_reported_and_languages_are_left_alone() {
        for (text, words) in [
            ("Pay by p\u{430}ypal, now", &["p\u{430}ypal"][..]),
            // Cyrillic throughout, in an English sentence and in an address in a Russian one.
            (
                "Use \u{430}\u{440}\u{440}\u{4cf}\u{435} here",
                &["\u{430}\u{440}\u{440}\u{4cf}\u{435}"],
            ),
            (
                "Смотри \u{430}\u{440}\u{440}\u{4cf}\u{435}.com и https://\u{441}\u{43e}.example/\u{430}",
                &["\u{430}\u{440}\u{440}\u{4cf}\u{435}", "\u{441}\u{43e}", "\u{430}"],
            ),
            ("Write to b\u{3bf}b@example.org", &["b\u{3bf}b"]),
            ("\u{3bf}ne and \u{3bf}ne", &["\u{3bf}ne"]),
            ("А как со сроком, т.е. а что он?", &[]),
            ("Привет, я купил iPhone и USB-кабель", &[]),
            ("Tシャツを3枚買う。東京タワー", &[]),
            ("Jürgen Öztürk's naïve façade, 5 µm, ısı, ﬁne, x²", &[]),
            ("ΔT = 5 K, α-helix, και ο ίδιος", &[]),
            ("plain", &[]),
        ] {
            let found: Vec<_> = look_alikes(text).into_iter().map(|found| found.word).collect();
            assert_eq!(found, words, "{text}");
        }
    }
}
