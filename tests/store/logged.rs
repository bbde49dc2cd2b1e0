//! The log lines of decisions.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Once;

use gavel::adapters::store::Store;
use gavel::domain::agent_run::RunStatus;
use gavel::ports::commit::Committed;
use gavel::ports::runs::Lease;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

use crate::commits::{Writes, finished};
use crate::support::{TestDb, begin, closed, done, intent, new_run, open_decision};

thread_local! {
    /// The log lines about decisions that this thread wrote, with their fields as text.
    static LINES: RefCell<Vec<BTreeMap<String, String>>> = const { RefCell::new(Vec::new()) };
}

/// Subscribes for the whole process: with a subscriber of one thread, a place that another thread logs from first is never
/// asked about again.
fn subscribe() {
    static SUBSCRIBED: Once = Once::new();
    SUBSCRIBED.call_once(|| {
        let subscriber = tracing_subscriber::registry().with(Lines);
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
}

/// Collects [`LINES`].
struct Lines;

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        self.0
            .insert(field.name().to_owned(), text.trim_matches('"').to_owned());
    }
}

struct Line(BTreeMap<String, String>);

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line(BTreeMap::new());
        event.record(&mut line);
        if line.0.contains_key("decision_id") && *event.metadata().level() == Level::INFO {
            LINES.with_borrow_mut(|lines| lines.push(line.0));
        }
    }
}

/// The lines since the last call.
fn lines() -> Vec<BTreeMap<String, String>> {
    LINES.take()
}

/// A decision with one call.
async fn chat(store: &Store) -> String {
    let open = open_decision();
    let intent = intent(&open, 1);
    store.open(open.clone(), vec![intent.clone()]).await.unwrap();
    let id = open.id.to_string();
    store.close(closed(open, vec![done(&intent)], true)).await.unwrap();
    id
}

/// Each decision is one line at INFO, whatever its surface, after it is recorded and not before.
pub(crate) async fn each_decision_is_one_log_line_with_its_key_fields(db: TestDb) {
    let store = db.open().await;
    subscribe();

    let id = chat(&store).await;
    let [line] = &lines()[..] else { panic!("one line") };
    assert_eq!(line["decision_id"], id);
    for (field, value) in [
        ("surface", "chat"),
        ("outcome", "SUCCESS:TASK_COMPLETED"),
        ("tool_calls", "1"),
    ] {
        assert_eq!(line[field], value, "{line:?}");
    }
    for field in ["decision_type", "intent", "duration_ms", "model"] {
        assert!(!line[field].is_empty(), "{field}: {line:?}");
    }
    assert_eq!(line.len(), 9, "no text of people: {line:?}");

    let run = new_run();
    let lease = begin(&store, &run).await;
    assert_eq!(lines(), [], "it is not decided yet");
    let lost = Lease {
        fence: lease.fence + 1,
        ..lease
    };
    let end = finished(lost, &run, RunStatus::Completed, Vec::new());
    assert_eq!(store.finish(end).await.unwrap(), Committed::LeaseLost);
    assert_eq!(lines(), [], "another process decides it");
    let end = finished(lease, &run, RunStatus::Completed, Vec::new());
    let id = end.decision.open.id.to_string();
    assert_eq!(store.finish(end).await.unwrap(), Committed::Written);
    let [line] = &lines()[..] else { panic!("one line") };
    assert_eq!((&line["decision_id"], &*line["surface"]), (&id, "agent"));
    store.shutdown().await;
}
