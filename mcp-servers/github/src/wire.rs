//! What GitHub says, as far as it is used. The tools show the same, with names in camel case.

use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use crate::marker;

/// The longest body that is shown, in bytes.
const MAX_BODY: usize = 64 << 10;

#[derive(Debug, Deserialize)]
pub(crate) struct User {
    pub(crate) login: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all(serialize = "camelCase"))]
pub(crate) struct Repository {
    #[serde(deserialize_with = "login")]
    owner: String,
    pub(crate) name: String,
    pub(crate) full_name: String,
    description: Option<String>,
    #[serde(alias = "private")]
    is_private: bool,
    #[serde(alias = "archived", default)]
    is_archived: bool,
    default_branch: Option<String>,
    pub(crate) html_url: String,
    clone_url: Option<String>,
    pushed_at: Option<String>,
    #[serde(skip_serializing)]
    pub(crate) created_at: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PullRequest {
    #[serde(flatten)]
    pub(crate) listed: ListedPullRequest,
    #[serde(flatten)]
    pub(crate) text: Text,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all(serialize = "camelCase"))]
pub(crate) struct ListedPullRequest {
    pub(crate) number: u64,
    title: String,
    #[schemars(extend("enum" = ["open", "closed"]))]
    pub(crate) state: String,
    #[serde(alias = "merged_at", default, deserialize_with = "is_there")]
    is_merged: bool,
    #[serde(alias = "draft", default)]
    is_draft: bool,
    pub(crate) head: Head,
    pub(crate) base: Base,
    #[serde(alias = "user", default, deserialize_with = "author")]
    author: Option<String>,
    pub(crate) html_url: String,
    created_at: String,
    updated_at: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Head {
    pub(crate) r#ref: String,
    sha: String,
    label: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Base {
    pub(crate) r#ref: String,
    sha: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all(serialize = "camelCase"))]
pub(crate) struct Issue {
    number: u64,
    title: String,
    #[serde(flatten)]
    pub(crate) text: Text,
    #[schemars(extend("enum" = ["open", "closed"]))]
    state: String,
    state_reason: Option<String>,
    #[serde(default, deserialize_with = "labels")]
    labels: Vec<String>,
    #[serde(alias = "user", default, deserialize_with = "author")]
    author: Option<String>,
    comments: u64,
    html_url: String,
    pub(crate) created_at: String,
    updated_at: String,
    /// GitHub's issues include its pull requests.
    #[serde(skip_serializing, alias = "pull_request", default, deserialize_with = "is_there")]
    pub(crate) is_pull_request: bool,
}

// A body as it is shown: without markers, and not too long.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all(serialize = "camelCase"), from = "Body")]
pub(crate) struct Text {
    /// Markdown, at most 64 KiB.
    body: Option<String>,
    /// Whether the body is longer than what is shown.
    body_truncated: bool,
    /// As it is at GitHub.
    #[serde(skip)]
    pub(crate) whole: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Body {
    body: Option<String>,
}

impl From<Body> for Text {
    fn from(Body { body: whole }: Body) -> Self {
        let mut body = whole.as_deref().map(marker::removed);
        let mut body_truncated = false;
        if let Some(body) = body.as_mut().filter(|body| body.len() > MAX_BODY) {
            body.truncate(body.floor_char_boundary(MAX_BODY));
            body_truncated = true;
        }
        Self {
            body,
            body_truncated,
            whole,
        }
    }
}

fn login<'de, D: Deserializer<'de>>(wire: D) -> Result<String, D::Error> {
    User::deserialize(wire).map(|user| user.login)
}

fn author<'de, D: Deserializer<'de>>(wire: D) -> Result<Option<String>, D::Error> {
    let user = Option::<User>::deserialize(wire)?;
    Ok(user.map(|user| user.login))
}

/// Whether GitHub says something else than null.
fn is_there<'de, D: Deserializer<'de>>(wire: D) -> Result<bool, D::Error> {
    Option::<IgnoredAny>::deserialize(wire).map(|found| found.is_some())
}

/// A label is an object with a name, or only a name.
fn labels<'de, D: Deserializer<'de>>(wire: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Label {
        Name(String),
        Label { name: Option<String> },
    }
    let labels = Vec::<Label>::deserialize(wire)?.into_iter();
    let names = labels.filter_map(|label| match label {
        Label::Name(name) => Some(name),
        Label::Label { name } => name,
    });
    Ok(names.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_body_is_cut_between_characters() {
        let of = |text: String| Text::from(Body { body: Some(text) });
        let fits = of("x".repeat(MAX_BODY));
        assert!(!fits.body_truncated);
        let cut = of("ä".repeat(MAX_BODY / 2) + "x");
        assert_eq!(
            (cut.body.map(|body| body.len()), cut.body_truncated),
            (Some(MAX_BODY), true)
        );
        let cut = of("x".to_owned() + &"ä".repeat(MAX_BODY / 2));
        assert_eq!(cut.body.map(|body| body.len()), Some(MAX_BODY - 1));
        let none = Text::from(Body { body: None });
        assert!(none.body.is_none() && !none.body_truncated);
    }
}
