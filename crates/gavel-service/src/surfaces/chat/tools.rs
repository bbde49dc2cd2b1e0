//! The tools of one request.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::request::ChatRequest;
use super::{Chat, ChatError};
use crate::api::problem::FieldError;
use crate::engine::Toolset;
use crate::engine::verdict::VerdictFunction;

/// How long a request waits for the servers of its tools before it continues without them.
pub(super) const SERVER_WAIT: Duration = Duration::from_secs(2);

impl Chat {
    /// The tools that the constitution lists, in its order.
    #[must_use]
    pub fn allowlist(&self) -> &[String] {
        &self.constitution.definition.tools
    }

    /// The tools on the allowlist that no server offers now, with the reason.
    #[must_use]
    pub fn unavailable_tools(&self) -> Vec<crate::engine::toolset::Missing> {
        self.whole_toolset().missing.clone()
    }

    pub(super) fn check_subset(&self, request: &ChatRequest) -> Result<(), ChatError> {
        let names = request.tools.as_deref().unwrap_or_default();
        let invalid = |(n, name): (usize, &String)| {
            let detail = if !self.allowlist().contains(name) {
                format!(
                    "{name:?} is not on the allowlist; allowed are {}",
                    self.allowlist().join(", ")
                )
            } else if names[..n].contains(name) {
                format!("{name:?} is given twice; allowed is each name once")
            } else {
                return None;
            };
            Some(FieldError::new(format!("/tools/{n}"), detail))
        };
        let errors: Vec<_> = names.iter().enumerate().filter_map(invalid).collect();
        if errors.is_empty() {
            Ok(())
        } else {
            Err(ChatError::Invalid(errors))
        }
    }

    /// The tools for this request. Waits briefly for servers that are still being connected.
    pub(super) async fn toolset_for(&self, subset: Option<&[String]>, began: Instant) -> Arc<Toolset> {
        let grant = |names: &[String]| {
            Arc::new(Toolset::build(
                &self.engine.tools.catalog(),
                names,
                &VerdictFunction::CHAT,
            ))
        };
        let find = || match subset {
            None => self.whole_toolset(),
            Some(names) => grant(names),
        };
        let toolset = find();
        if toolset.missing.is_empty() {
            return toolset;
        }
        let names: Vec<String> = toolset.missing.iter().map(|one| one.name.clone()).collect();
        self.engine.tools.ready(&names, began + SERVER_WAIT).await;
        let toolset = find();
        // Logged once for each generation of the catalog, however many messages arrive.
        if self.logged_missing.swap(toolset.generation, Ordering::Relaxed) != toolset.generation {
            for one in &toolset.missing {
                tracing::warn!(
                    tool = %one.name,
                    reason = %one.reason,
                    "a tool on the allowlist is unavailable; deciding without it"
                );
            }
        }
        toolset
    }

    pub(super) fn whole_toolset(&self) -> Arc<Toolset> {
        let catalog = self.engine.tools.catalog();
        if let Some(toolset) = self.toolset.load_full()
            && toolset.generation == catalog.generation
        {
            return toolset;
        }
        let toolset = Arc::new(Toolset::build(&catalog, self.allowlist(), &VerdictFunction::CHAT));
        self.toolset.store(Some(Arc::clone(&toolset)));
        toolset
    }
}
