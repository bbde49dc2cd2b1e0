//! All servers' tools as one immutable snapshot per generation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use super::definition::Offer;
use crate::domain::tool::Tool;
use crate::ports::tools::{Catalog, LeftOut};

/// One server's contribution to the catalog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct View {
    connecting: bool,
    down: Option<String>,
    left_out: Vec<LeftOut>,
}

type Part = (Vec<Arc<Tool>>, View);

/// The current [`Catalog`] and its parts.
#[derive(Debug, Default)]
pub(super) struct Registry {
    current: ArcSwap<Catalog>,
    parts: Mutex<BTreeMap<Arc<str>, Part>>,
}

impl Registry {
    pub(super) fn new() -> Self {
        tools_on_offer().set(0.0);
        Self::default()
    }

    /// The current snapshot.
    pub(super) fn current(&self) -> Arc<Catalog> {
        self.current.load_full()
    }

    /// A server is being connected for the first time.
    pub(super) fn connecting(&self, server: &Arc<str>) {
        let view = View {
            connecting: true,
            ..View::default()
        };
        self.publish(server, None, view);
    }

    /// A server is connected and offers these tools.
    pub(super) fn up(&self, server: &Arc<str>, offer: Offer) {
        self.publish(
            server,
            Some(offer.tools),
            View {
                left_out: offer.left_out,
                ..View::default()
            },
        );
    }

    /// A server is down. With `keep`, its tools remain for now, because it is expected back soon.
    pub(super) fn down(&self, server: &Arc<str>, reason: &str, keep: bool) {
        let tools = if keep { None } else { Some(Vec::new()) };
        self.publish(
            server,
            tools,
            View {
                down: Some(reason.to_owned()),
                ..View::default()
            },
        );
    }

    fn publish(&self, server: &Arc<str>, tools: Option<Vec<Arc<Tool>>>, view: View) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let part = parts.entry(server.clone()).or_default();
        let tools = tools.unwrap_or_else(|| part.0.clone());
        let same_tools = part.0.len() == tools.len() && part.0.iter().zip(&tools).all(|(a, b)| Arc::ptr_eq(a, b));
        if same_tools && part.1 == view {
            return;
        }
        *part = (tools, view);
        let mut catalog = Catalog {
            generation: self.current.load().generation + 1,
            ..Catalog::default()
        };
        for (name, (tools, view)) in parts.iter() {
            catalog.tools.extend(tools.iter().cloned());
            catalog.left_out.extend(view.left_out.iter().cloned());
            if view.connecting {
                catalog.connecting.insert(name.clone());
            }
            if let Some(reason) = &view.down {
                catalog.down.insert(name.clone(), reason.clone());
            }
        }
        tools_on_offer().set(catalog.tools.len() as f64);
        // Stored while the parts are locked, so that generations stay in order.
        self.current.store(Arc::new(catalog));
    }
}

fn tools_on_offer() -> metrics::Gauge {
    metrics::gauge!("gavel_mcp_catalog_tools")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_generation_is_new_only_when_something_changed() {
        let registry = Registry::default();
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let first = registry.current();
        assert_eq!(first.generation, 0);
        registry.down(&b, "refused", false);
        registry.up(&a, Offer::default());
        let known = registry.current();
        registry.down(&b, "refused", false);
        assert_eq!(registry.current().generation, known.generation);
        assert_eq!(known.down[&b], "refused");
        registry.down(&b, "timed out", false);
        assert_eq!(registry.current().generation, known.generation + 1);
        assert_eq!(known.down[&b], "refused", "an old snapshot does not change");
    }
}
