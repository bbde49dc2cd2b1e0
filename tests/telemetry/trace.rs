//! Whole traces, once all their spans have arrived.

use crate::collector::{Collector, Span};
use crate::harness::until;

impl Collector {
    /// Waits for `count` spans of this name and returns them in order of their starts.
    pub async fn named(&self, name: &str, count: usize) -> Vec<Span> {
        let found = || {
            let mut spans = self.spans();
            spans.retain(|span| span.name == name);
            spans.sort_by_key(|span| span.start);
            spans
        };
        until(&format!("{count} spans {name}"), || async { found().len() >= count }).await;
        assert_eq!(found().len(), count, "spans {name}");
        found()
    }

    /// The traces of `count` requests whose span has this name. That span ends last.
    pub async fn requests(&self, name: &str, count: usize) -> Vec<Tree> {
        let roots = self.named(name, count).await;
        roots.into_iter().map(|root| Tree::of(root, self.spans())).collect()
    }

    /// The trace of the one request whose span has this name.
    pub async fn request(&self, name: &str) -> Tree {
        self.requests(name, 1).await.remove(0)
    }
}

/// One trace.
pub struct Tree {
    pub root: Span,
    spans: Vec<Span>,
}

impl Tree {
    fn of(root: Span, mut spans: Vec<Span>) -> Self {
        spans.retain(|span| span.trace == root.trace);
        spans.sort_by_key(|span| span.start);
        Self { root, spans }
    }

    /// One line per span, in order of their starts, indented by depth. A `!` marks a failure.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        self.tell(&self.root, 0, &mut lines);
        assert_eq!(
            lines.len(),
            self.spans.len(),
            "spans beside the tree: {:#?}",
            self.spans
        );
        lines
    }

    fn tell(&self, span: &Span, depth: usize, lines: &mut Vec<String>) {
        let mark = if span.failed { " !" } else { "" };
        lines.push(format!("{}{}{mark}", "  ".repeat(depth), span.name));
        for child in self.spans.iter().filter(|child| child.parent == span.id) {
            self.tell(child, depth + 1, lines);
        }
    }

    /// The spans of this name, in order of their starts.
    pub fn named(&self, name: &str) -> Vec<&Span> {
        self.spans.iter().filter(|span| span.name == name).collect()
    }
}
