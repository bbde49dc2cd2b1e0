//! What a call names: a repository, a pull request or issue, a path, a branch. Each becomes part of an address, so each
//! is valid or refused.

use gavel_mcp_base::{Arguments, ToolError, invalid, missing};
use url::Url;

use crate::github::GitHub;

const MAX_OWNER: usize = 100;
const MAX_NAME: usize = 100;
const MAX_REF: usize = 255;
const MAX_PATH: usize = 4096;

/// A repository.
#[derive(Debug)]
pub(super) struct Repo {
    pub(super) owner: String,
    pub(super) name: String,
}

impl Repo {
    pub(super) fn parse(arguments: &Arguments) -> Result<Self, ToolError> {
        let owner = required(arguments, "owner", MAX_OWNER)?;
        if !owner
            .chars()
            .all(|each| each.is_ascii_alphanumeric() || "-_".contains(each))
        {
            return Err(invalid("owner", "is not a user or an organization, such as octocat"));
        }
        let name = required(arguments, "repo", MAX_NAME)?;
        if !is_name(&name) {
            return Err(invalid(
                "repo",
                "is not the name of a repository, such as hello-world, without its owner",
            ));
        }
        Ok(Self { owner, name })
    }

    /// An address below the repository.
    pub(super) fn url(&self, github: &GitHub, rest: &[&str]) -> Url {
        github.url(&[&["repos", &self.owner, &self.name], rest].concat())
    }
}

/// Whether a repository can have this name.
pub(super) fn is_name(name: &str) -> bool {
    let plain = |each: char| each.is_ascii_alphanumeric() || "._-".contains(each);
    !name.is_empty() && name.chars().all(plain) && name != "." && name != ".." && !name.ends_with(".git")
}

pub(super) fn required(arguments: &Arguments, name: &str, max: usize) -> Result<String, ToolError> {
    arguments.visible_text(name, max)?.ok_or_else(|| missing(name))
}

/// The number of a pull request or an issue.
pub(super) fn number(arguments: &Arguments, name: &str) -> Result<String, ToolError> {
    let number = arguments.integer(name, 1, i32::MAX as u32)?;
    number.map(|number| number.to_string()).ok_or_else(|| missing(name))
}

/// A branch, a tag or a commit.
pub(super) fn reference(arguments: &Arguments, name: &str) -> Result<Option<String>, ToolError> {
    let Some(reference) = arguments.visible_text(name, MAX_REF)? else {
        return Ok(None);
    };
    let forbidden = |each: char| each.is_control() || each.is_whitespace() || "~^:?*[\\".contains(each);
    let segments = reference
        .split('/')
        .all(|segment| !segment.is_empty() && segment != ".");
    if reference.contains(forbidden) || reference.contains("..") || !segments {
        return Err(invalid(name, "is not a branch, a tag or a commit"));
    }
    Ok(Some(reference))
}

/// The segments of a path in a repository.
pub(super) fn path(arguments: &Arguments) -> Result<Option<Vec<String>>, ToolError> {
    let Some(path) = arguments.exact_text("path")?.map(|path| path.trim_end_matches('/')) else {
        return Ok(None);
    };
    if path.is_empty() {
        return Ok(None);
    }
    let segments: Vec<_> = path.split('/').map(str::to_owned).collect();
    let plain = |segment: &String| !matches!(segment.as_str(), "" | "." | "..") && !segment.contains(char::is_control);
    if path.len() > MAX_PATH || !segments.iter().all(plain) {
        let rule = "has to be relative to the repository's root, such as src/main.rs, without `.` and `..`";
        return Err(invalid("path", rule));
    }
    Ok(Some(segments))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn arguments(given: Value) -> Arguments {
        Arguments::new(given.as_object().cloned(), &["owner", "repo", "ref", "path", "n"]).expect("known arguments")
    }

    #[test]
    fn nothing_that_changes_the_address_is_accepted() {
        for (owner, repo) in [
            ("a/b", "c"),
            ("..", "c"),
            ("a", ".."),
            ("a", "b/c"),
            ("a", "b?c"),
            ("a", "."),
            ("a b", "c"),
            ("a", "b#c"),
            ("a", "%2e%2e"),
            ("a", "b.git"),
            ("", "b"),
        ] {
            let given = arguments(json!({ "owner": owner, "repo": repo }));
            assert!(Repo::parse(&given).is_err(), "{owner}/{repo}");
        }
        let given = arguments(json!({ "owner": "acme-1", "repo": "dates.rs_2" }));
        assert!(Repo::parse(&given).is_ok());
        for path_given in ["/x", "a//b", "../x", "a/./b", "a/..", "a\nb"] {
            assert!(path(&arguments(json!({ "path": path_given }))).is_err(), "{path_given}");
        }
        let segments = path(&arguments(json!({ "path": "a b/ü?.rs/" }))).expect("a path");
        assert_eq!(segments, Some(vec!["a b".to_owned(), "ü?.rs".to_owned()]));
        assert_eq!(path(&arguments(json!({ "path": "/" }))).expect("the root"), None);
        for given in ["a..b", "a b", "a:b", "/a", "a/", "./a", "a^"] {
            assert!(
                reference(&arguments(json!({ "ref": given })), "ref").is_err(),
                "{given}"
            );
        }
        assert!(reference(&arguments(json!({ "ref": "feature/x#1" })), "ref").is_ok());
        for given in [json!(0), json!(-1), json!(1.5), json!("7"), json!(1e12)] {
            assert!(number(&arguments(json!({ "n": given })), "n").is_err(), "{given}");
        }
        assert_eq!(number(&arguments(json!({ "n": 7.0 })), "n").expect("a number"), "7");
    }
}
