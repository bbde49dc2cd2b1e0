//! kill -9: an answered decision is in the log.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;

use gavel::adapters::store::Store;
use gavel::ports::commit::Recorder;

use crate::commits::Writes;
use crate::support::{TestDb, closed, done, intent, open_decision};

const URL: &str = "GAVEL_TEST_KILLED_URL";

/// Not a test: the process that is killed. Prints the id of each decision after its close was answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the process that another test starts and kills"]
async fn child_that_writes_until_it_is_killed() {
    let url = std::env::var(URL).unwrap();
    let config = gavel::adapters::store::StoreConfig::new(url, gavel::domain::ids::InstanceId::new());
    let store = Store::open(config).await.unwrap();
    let mut writing = tokio::task::JoinSet::new();
    for writer in 0..32_u32 {
        let store = Arc::clone(&store);
        writing.spawn(async move {
            loop {
                let open = open_decision();
                // Half of them have an effect: two commits.
                let opened = writer % 2 == 0;
                let intent = intent(&open, 1);
                if opened {
                    store.open(open.clone(), vec![intent.clone()]).await.unwrap();
                }
                let id = open.id;
                store.close(closed(open, vec![done(&intent)], opened)).await.unwrap();
                // One write per line, so that a kill cuts at most the last.
                let line = format!("recorded {id}\n");
                std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
            }
        });
    }
    writing.join_next().await.unwrap().unwrap();
}

/// C-SC-3: every decision that was answered before the kill is stored completely; the others are recovered.
pub(crate) async fn an_answered_decision_survives_kill_9(db: TestDb) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::child_that_writes_until_it_is_killed"])
        .args(["--ignored", "--nocapture"])
        .env(URL, &db.url)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let answered = tokio::task::spawn_blocking(move || {
        let mut answered = BTreeSet::new();
        let id = |line: &str| line.strip_prefix("recorded ").map(str::to_owned);
        while answered.len() < 500 {
            let line = lines.next().expect("the child writes").unwrap();
            answered.extend(id(&line));
        }
        // At any point of its work.
        child.kill().unwrap();
        child.wait().unwrap();
        // Its remaining output counts as well; only the last line may be cut.
        answered.extend(
            lines
                .map_while(Result::ok)
                .filter_map(|line| id(&line))
                .filter(|id| id.len() == 36),
        );
        answered
    })
    .await
    .unwrap();

    let whole = "SELECT d.id FROM decision_log d JOIN tool_invocation_log t ON t.decision_id = d.id \
                 WHERE d.status = 'closed' AND NOT d.recovered AND t.status = 'completed'";
    let recorded: BTreeSet<String> = db
        .rows(whole)
        .await
        .into_iter()
        .map(|row| row[0].clone().unwrap())
        .collect();
    let missing: Vec<_> = answered.difference(&recorded).collect();
    assert!(
        missing.is_empty(),
        "{} of {} are missing: {missing:?}",
        missing.len(),
        answered.len()
    );

    // Its lease expires, and the next process closes what it left open.
    db.run("UPDATE instance SET lease_until = 0").await;
    let store = db.open().await;
    assert_eq!(
        db.count("SELECT COUNT(*) FROM decision_log WHERE status = 'open'")
            .await,
        0
    );
    assert_eq!(
        db.count("SELECT COUNT(*) FROM tool_invocation_log WHERE status = 'started'")
            .await,
        0
    );
    store.available().unwrap();
    // the entries are a chain without a gap, and contain every effect.
    crate::audit::whole(&db).await;
}
