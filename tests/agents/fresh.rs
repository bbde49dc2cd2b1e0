//! A run that its creator executes at once: nothing of it is read back, and little is written.

use std::sync::Arc;

use gavel::domain::agent_run::RunStatus;
use gavel::domain::journal::Entry;
use gavel::engine::agent::Agents;
use gavel::ports::runs::Runs;
use serde_json::json;

use crate::crash::{Death, Dying};
use crate::model::{call, words};
use crate::rig::Rig;
use crate::support::{TestDb, tenant};
use crate::tools::Does;

const READER: &str = r#"
name: reader
description: Reads.
promptConfig: { query: "Do: ${query}", systemPrompt: reader }
toolConfig: { tools: [read, book] }
approval: never
"#;

/// Gets no answer from the model.
const SILENT: &str = "name: silent\ndescription: d\nsystemPrompt: silent\n";

/// Submits an output that conforms to a schema.
const REPORTER: &str = r#"
name: reporter
description: Reports.
promptConfig: { query: "Report: ${query}", systemPrompt: reporter }
outputConfig: { outputName: report, description: A number., schema: { type: integer } }
approval: never
"#;

/// `runs`: the CPU of a triggered run.
pub(crate) async fn a_run_with_one_read_is_read_from_nowhere_and_written_twice_after_its_creation(db: TestDb) {
    let rig = Rig::on(db, &[READER]).await;
    rig.model
        .script("reader", [call("read", json!({"n": 1})), words("It says hello.")]);
    let store = Dying::never(&rig.store);
    let (begun, ended) = rig.run_fresh(&store, "reader").await;
    assert_eq!(ended.unwrap().end.status, RunStatus::Completed);
    // After its creation with the task: the read with its result, and the end.
    assert_eq!((store.writes(), store.reads()), (2, 0));
    let run = rig.outcome(begun.id).await;
    assert!(
        matches!(
            run.journal.as_slice(),
            [
                Entry::User(_),
                Entry::ModelTurn { .. },
                Entry::Decided { .. },
                Entry::Started { .. },
                Entry::Result { .. },
                Entry::ModelTurn { .. }
            ]
        ),
        "{:?}",
        run.journal
    );
}

/// The caller of a run gets it from memory once its end is committed.
pub(crate) async fn a_run_that_has_ended_is_known_as_the_store_has_it(db: TestDb) {
    let rig = Rig::on(db, &[READER, REPORTER, SILENT]).await;
    rig.model.script(
        "reader",
        [
            call("read", json!({"n": 1})).and("book", json!({"n": 2})).costing(7),
            words("Two\nlines."),
        ],
    );
    rig.model
        .script("reporter", [call("complete_task", json!({"report": 7}))]);
    rig.model.script("silent", []);
    for (agent, status) in [
        ("reader", RunStatus::Completed),
        ("reporter", RunStatus::Completed),
        ("silent", RunStatus::Failed),
    ] {
        let (begun, ended) = rig.run_fresh(&Dying::never(&rig.store), agent).await;
        let known = ended.unwrap().shown.unwrap();
        let stored = rig.store.get(&tenant(), None, begun.id).await.unwrap().unwrap();
        assert_eq!(known.status, status);
        let json = |run| serde_json::to_value(run).unwrap();
        assert_eq!(json(&*known), json(&stored));
    }
}

/// Promises: at most once, truthful states. For a run that its creator executes at once.
pub(crate) async fn a_run_whose_creator_dies_at_any_write_ends_as_if_undisturbed(db: TestDb) {
    let mut rig = Rig::on(db, &[READER]).await;
    for death in [Death::Before, Death::After] {
        for write in 1.. {
            rig = rig.afresh();
            let turns = [
                call("read", json!({"n": 1})).and("book", json!({"n": 2})),
                call("read", json!({"n": 3})),
                words("Done."),
            ];
            // A turn that was lost with its process is asked for again.
            rig.model.answers("reader", move |asked| turns[asked.before].clone());
            // The creation itself succeeds.
            let (begun, ended) = rig.run_fresh(&Dying::at(&rig.store, write, death), "reader").await;
            let run = match (ended, rig.take_over(begun).await) {
                (Ok(_), _) => {
                    assert!(write > 3, "only {write} writes");
                    break;
                }
                (Err(_), Some(begun)) => rig.finish(begun).await,
                // The last write was the end of the run.
                (Err(_), None) => rig.outcome(begun.id).await,
            };
            assert_eq!(
                (run.status(), run.summary()),
                (RunStatus::Completed, "Done."),
                "{death:?} {write}"
            );
            assert_eq!(rig.tools.effects().len(), 1, "{death:?} {write}");
        }
    }
}

/// A watcher sees a slow read before it has ended.
#[tokio::test]
async fn the_start_of_a_slow_read_is_written_meanwhile() {
    let rig = Rig::new(&[READER]).await;
    rig.model
        .script("reader", [call("read", json!({"n": 1})), words("It says hello.")]);
    rig.tools.script("read", [Does::Waits]);
    let store = Dying::never(&rig.store);
    let begun = rig.begin("reader", json!({"query": "go"}), None).await;
    let process = rig.process(Arc::clone(&store));
    let seen = async {
        rig.tools.waited_for.notified().await;
        rig.until_a_call_is_recorded(begun.id).await;
        rig.tools.continues.notify_one();
    };
    let (ended, ()) = tokio::join!(rig.drive(&process, begun), seen);
    assert_eq!(ended.unwrap().end.status, RunStatus::Completed);
    let run = rig.outcome(begun.id).await;
    assert_eq!(run.summary(), "It says hello.");
}

/// A cancellation finds a run from the moment that its row exists.
#[tokio::test]
async fn a_run_that_was_cancelled_before_its_first_step_makes_none() {
    let rig = Rig::new(&[READER]).await;
    rig.model.script("reader", [words("Never said.")]);
    let cancel = |process: &Agents, run| process.running.cancel(run);
    let (_, ended) = rig.run_fresh_after(&Dying::never(&rig.store), "reader", cancel).await;
    assert_eq!(ended.unwrap().end.status, RunStatus::Cancelled);
    assert_eq!(rig.model.asked().len(), 0);
}
