//! What GitHub says, as far as it is used, and what the tools show of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::marker;

/// The longest body that is shown, in bytes.
const MAX_BODY: usize = 64 << 10;

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct WireUser {
    pub(crate) login: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct WireRepository {
    pub(crate) name: String,
    pub(crate) full_name: String,
    pub(crate) owner: WireUser,
    description: Option<String>,
    private: bool,
    #[serde(default)]
    archived: bool,
    #[serde(default)]
    default_branch: Option<String>,
    pub(crate) html_url: String,
    #[serde(default)]
    clone_url: Option<String>,
    #[serde(default)]
    pushed_at: Option<String>,
    #[serde(default)]
    pub(crate) created_at: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Repository {
    owner: String,
    name: String,
    full_name: String,
    description: Option<String>,
    is_private: bool,
    is_archived: bool,
    default_branch: Option<String>,
    html_url: String,
    clone_url: Option<String>,
    pushed_at: Option<String>,
}

impl From<WireRepository> for Repository {
    fn from(wire: WireRepository) -> Self {
        Self {
            owner: wire.owner.login,
            name: wire.name,
            full_name: wire.full_name,
            description: wire.description,
            is_private: wire.private,
            is_archived: wire.archived,
            default_branch: wire.default_branch,
            html_url: wire.html_url,
            clone_url: wire.clone_url,
            pushed_at: wire.pushed_at,
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct WireEnd {
    pub(crate) r#ref: String,
    sha: String,
    #[serde(default)]
    label: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct WirePullRequest {
    pub(crate) number: u64,
    title: String,
    pub(crate) body: Option<String>,
    pub(crate) state: String,
    #[serde(default)]
    merged_at: Option<String>,
    #[serde(default)]
    draft: Option<bool>,
    pub(crate) head: WireEnd,
    pub(crate) base: WireEnd,
    user: Option<WireUser>,
    pub(crate) html_url: String,
    created_at: String,
    updated_at: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PullRequest {
    #[serde(flatten)]
    listed: ListedPullRequest,
    #[serde(flatten)]
    text: Text,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListedPullRequest {
    number: u64,
    title: String,
    #[schemars(extend("enum" = ["open", "closed"]))]
    state: String,
    is_merged: bool,
    is_draft: bool,
    head: Head,
    base: Base,
    author: Option<String>,
    html_url: String,
    created_at: String,
    updated_at: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Head {
    r#ref: String,
    sha: String,
    label: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Base {
    r#ref: String,
    sha: String,
}

impl WirePullRequest {
    /// With its body.
    pub(crate) fn whole(mut self) -> PullRequest {
        PullRequest {
            text: Text::new(self.body.take()),
            listed: self.without_body(),
        }
    }

    /// As an entry of a list.
    pub(crate) fn without_body(self) -> ListedPullRequest {
        ListedPullRequest {
            number: self.number,
            title: self.title,
            state: self.state,
            is_merged: self.merged_at.is_some(),
            is_draft: self.draft.unwrap_or_default(),
            head: Head {
                r#ref: self.head.r#ref,
                sha: self.head.sha,
                label: self.head.label,
            },
            base: Base {
                r#ref: self.base.r#ref,
                sha: self.base.sha,
            },
            author: self.user.map(|user| user.login),
            html_url: self.html_url,
            created_at: self.created_at,
            updated_at: self.updated_at,
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct WireIssue {
    pub(crate) number: u64,
    title: String,
    #[serde(default)]
    pub(crate) body: Option<String>,
    pub(crate) state: String,
    #[serde(default)]
    state_reason: Option<String>,
    #[serde(default)]
    labels: Vec<WireLabel>,
    user: Option<WireUser>,
    comments: u64,
    html_url: String,
    pub(crate) created_at: String,
    updated_at: String,
    /// GitHub's issues include its pull requests.
    #[serde(default)]
    pub(crate) pull_request: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum WireLabel {
    Name(String),
    Label { name: Option<String> },
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Issue {
    number: u64,
    title: String,
    #[serde(flatten)]
    text: Text,
    #[schemars(extend("enum" = ["open", "closed"]))]
    state: String,
    state_reason: Option<String>,
    labels: Vec<String>,
    author: Option<String>,
    comments: u64,
    html_url: String,
    created_at: String,
    updated_at: String,
}

impl From<WireIssue> for Issue {
    fn from(wire: WireIssue) -> Self {
        let labels = wire.labels.into_iter().filter_map(|label| match label {
            WireLabel::Name(name) => Some(name),
            WireLabel::Label { name } => name,
        });
        Self {
            number: wire.number,
            title: wire.title,
            text: Text::new(wire.body),
            state: wire.state,
            state_reason: wire.state_reason,
            labels: labels.collect(),
            author: wire.user.map(|user| user.login),
            comments: wire.comments,
            html_url: wire.html_url,
            created_at: wire.created_at,
            updated_at: wire.updated_at,
        }
    }
}

// A body as it is shown: without markers, and not too long.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Text {
    /// Markdown, at most 64 KiB.
    body: Option<String>,
    /// Whether the body is longer than what is shown.
    body_truncated: bool,
}

impl Text {
    fn new(body: Option<String>) -> Self {
        let mut body = body.map(|body| marker::removed(&body));
        let mut body_truncated = false;
        if let Some(body) = body.as_mut().filter(|body| body.len() > MAX_BODY) {
            body.truncate(body.floor_char_boundary(MAX_BODY));
            body_truncated = true;
        }
        Self { body, body_truncated }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_body_is_cut_between_characters() {
        let of = |text: String| Text::new(Some(text));
        let fits = of("x".repeat(MAX_BODY));
        assert!(!fits.body_truncated);
        let cut = of("ä".repeat(MAX_BODY / 2) + "x");
        assert_eq!(
            (cut.body.map(|body| body.len()), cut.body_truncated),
            (Some(MAX_BODY), true)
        );
        let cut = of("x".to_owned() + &"ä".repeat(MAX_BODY / 2));
        assert_eq!(cut.body.map(|body| body.len()), Some(MAX_BODY - 1));
        assert_eq!(
            Text::new(None),
            Text {
                body: None,
                body_truncated: false
            }
        );
    }
}
