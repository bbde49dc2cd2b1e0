//! The names and signs of Rust code, as far as it takes to see what a file names.

/// The tokens without the items under `#[cfg(test)]`, and the modules in files that these declare.
pub(super) fn without_tests<'a>(tokens: &[&'a str]) -> (Vec<&'a str>, Vec<String>) {
    let mut kept = Vec::new();
    let mut modules = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let Some(end) = end_of_test_attribute(tokens, at) else {
            kept.push(tokens[at]);
            at += 1;
            continue;
        };
        let item = end;
        let mut depth = 0_usize;
        at = end;
        while at < tokens.len() {
            match tokens[at] {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth = depth.saturating_sub(1),
                _ => {}
            }
            at += 1;
            let ends = ["}", ";", ","].contains(&tokens[at - 1]);
            if depth == 0 && ends {
                break;
            }
        }
        let declared = tokens[item..at].iter().skip_while(|token| **token != "mod").nth(1);
        modules.extend(
            declared
                .filter(|_| tokens[at - 1] == ";")
                .map(|name| (*name).to_owned()),
        );
    }
    (kept, modules)
}

/// Where `#[cfg(test)]`, or `#[cfg(all(test, …))]`, at `at` ends.
fn end_of_test_attribute(tokens: &[&str], at: usize) -> Option<usize> {
    if !tokens[at..].starts_with(&["#", "[", "cfg"]) {
        return None;
    }
    let length = tokens[at..].iter().position(|token| *token == "]")?;
    let condition = &tokens[at..at + length];
    let is_test = condition.contains(&"test") && !condition.contains(&"not") && !condition.contains(&"any");
    is_test.then_some(at + length + 1)
}

/// The names, `::` and single characters of a text, without comments and without the contents of strings.
pub(super) fn tokens(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            _ if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            _ if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '"' => quoted(rest),
            '\'' => character(rest),
            _ if raw_quoted(rest).is_some() => raw_quoted(rest).unwrap_or(1),
            _ if rest.starts_with("::") => 2,
            _ if first.is_alphanumeric() || first == '_' => {
                let inner = |letter: char| !(letter.is_alphanumeric() || letter == '_');
                rest.find(inner).unwrap_or(rest.len())
            }
            _ => first.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        let is_code = !first.is_whitespace()
            && !['"', '\''].contains(&first)
            && !token.starts_with("/")
            && !token.ends_with('"')
            && !token.ends_with("\"#");
        if is_code {
            found.push(token);
        }
        rest = after;
    }
    found
}

/// The length of the string that a text begins with.
fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of the raw string that a text begins with.
fn raw_quoted(text: &str) -> Option<usize> {
    let inner = text.strip_prefix("br").or_else(|| text.strip_prefix('r'))?;
    let hashes = inner.len() - inner.trim_start_matches('#').len();
    let body = inner[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let begins = text.len() - body.len();
    Some(body.find(&end).map_or(text.len(), |at| begins + at + end.len()))
}

/// The length of the character, or of the sign of the lifetime, that a text begins with.
fn character(text: &str) -> usize {
    let mut letters = text.char_indices().skip(1);
    match (letters.next(), letters.next()) {
        (Some((_, '\\')), Some(_)) => letters
            .find(|(_, letter)| *letter == '\'')
            .map_or(text.len(), |(at, _)| at + 1),
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}
