//! What is deleted: rows after their retention time, and the texts of a user on request.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gavel::adapters::store::{Store, StoreConfig};
use gavel::api::decisions::Erased;
use gavel::domain::action::Resolution;
use gavel::domain::agent_run::RunStatus;
use gavel::domain::ids::{ActionId, ApprovalId, DecisionId, ErasureId, GrantId, UserId};
use gavel::ports::actions::{Actions as _, Resolve, Resolved};
use gavel::ports::commit::{Committed, Recorder as _};
use gavel::ports::records::{Decisions as _, Erasure, OpenDecision};
use gavel::ports::runs::{NewRun, Runs as _};
use uuid::{NoContext, Timestamp, Uuid};

use crate::audit::{asked, whole};
use crate::commits::{Writes as _, finished, suspend};
use crate::content::plant_in;
use crate::support::{TestDb, begin, eventually, intent, new_run, open_decision, tenant};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A decision of a user, some days ago.
fn of(user: &str, days: u32) -> OpenDecision {
    let at = (SystemTime::now() - DAY * days)
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    let id = Uuid::new_v7(Timestamp::from_unix(NoContext, at.as_secs(), 0));
    OpenDecision {
        id: DecisionId::parse(&id.to_string()).unwrap(),
        user: UserId::parse(user).unwrap(),
        created_at: i64::try_from(at.as_micros()).unwrap(),
        ..open_decision()
    }
}

/// `records_kept`: what was closed longer ago goes with its calls and texts and with the texts of its audit entries. Its
/// counts and the audit chain stay, whether it was counted before or not, and so does what is young, open, or of a run.
pub(crate) async fn old_rows_are_deleted_and_their_counts_stay(db: TestDb) {
    let store = db.open().await;
    for days in [100, 60, 31, 1] {
        plant_in(&store, of("ann", days), &format!("{days}-days")).await;
    }
    let old = of("ann", 80);
    let run = NewRun {
        id: old.id.run(),
        decision: old,
        ..new_run()
    };
    begin(&store, &run).await;
    store.shutdown().await;
    let at_work = db.open().await;
    let open = of("ann", 90);
    at_work.open(open.clone(), vec![intent(&open, 1)]).await.unwrap();

    let rows = || async {
        let decisions = db.rows("SELECT id FROM decision_log ORDER BY id").await;
        let calls = db.count("SELECT COUNT(*) FROM tool_invocation_log").await;
        (decisions.len(), calls)
    };
    let kept = StoreConfig {
        records_kept: Some(30 * DAY),
        ..db.config()
    };
    // It counts and prunes when it starts; what is not yet counted is pruned later.
    for _ in 0..2 {
        let store = Store::open(kept.clone()).await.unwrap();
        eventually("all is counted", async || {
            db.count("SELECT COUNT(*) FROM stats_dirty").await == 0
        })
        .await;
        store.shutdown().await;
    }
    let store = Store::open(kept.clone()).await.unwrap();
    eventually("old decisions are deleted", async || rows().await == (3, 10 + 1)).await;
    let everything = db.everything().await;
    for (days, is_kept) in [(100, false), (60, false), (31, false), (1, true)] {
        let found = around(&everything, &format!(" {days}-days"));
        assert_eq!(found.is_some(), is_kept, "{days} days: {found:?}");
    }
    assert_eq!(db.count("SELECT SUM(n) FROM stats_quarter").await, 4);
    assert_eq!(db.count("SELECT SUM(n) FROM tool_stats_quarter").await, 40);
    let entries = "SELECT COUNT(*) FROM audit WHERE kind = 'effect_intended'";
    assert_eq!(db.count(entries).await, 4 + 1);
    whole(&db).await;
    store.shutdown().await;

    // A mark that comes late does not count a quarter again whose rows are gone.
    db.run("INSERT INTO stats_dirty (tenant, quarter, taken) SELECT tenant, quarter, NULL FROM stats_quarter")
        .await;
    let store = Store::open(kept).await.unwrap();
    eventually("all is counted", async || {
        db.count("SELECT COUNT(*) FROM stats_dirty").await == 0
    })
    .await;
    assert_eq!(db.count("SELECT SUM(n) FROM stats_quarter").await, 4);
    store.shutdown().await;
    at_work.shutdown().await;
}

async fn erase(store: &Arc<Store>, user: &str) -> Erased {
    let mut erasure = Erasure {
        tenant: tenant(),
        user: UserId::parse(user).unwrap(),
        actor: "service:privacy".to_owned(),
        after: Some(String::new()),
        erased: Erased {
            erasure_id: ErasureId::new(),
            decisions: 0,
            tool_invocations: 0,
            left: 0,
        },
    };
    while erasure.after.is_some() {
        erasure = store.erase(erasure).await.unwrap();
    }
    erasure.erased
}

/// Where a text is, with what is around it.
fn around<'a>(all: &'a str, text: &str) -> Option<&'a str> {
    let at = all.find(text)?;
    Some(&all[all.floor_char_boundary(at.saturating_sub(300))..all.ceil_char_boundary(at + 60)])
}

/// A run and its calls that wait for an answer.
type Waiting = (NewRun, [(ActionId, ApprovalId); 2]);

/// A run of a user that waits for an answer of a person.
async fn asks(store: &Arc<Store>, user: &str, canary: &str) -> Waiting {
    let mut run = new_run();
    run.decision.user = UserId::parse(user).unwrap();
    run.decision.message = format!("run {canary}").into();
    let lease = begin(store, &run).await;
    let actions = [(); 2].map(|()| (ActionId::new(), ApprovalId::new()));
    let asked = actions.map(|(id, approval)| {
        let mut action = asked(id, approval);
        action.details.reason = format!("why {canary}");
        action
    });
    let suspend = suspend(lease, run.id, asked.into());
    assert_eq!(store.commit(suspend).await.unwrap(), Committed::Written);
    (run, actions)
}

/// The user answers both questions with reasons, and the run ends. Returns the grant.
async fn ends(store: &Arc<Store>, user: &str, canary: &str, (run, actions): Waiting) -> GrantId {
    let grant = GrantId::new();
    for (n, (action, approval)) in actions.into_iter().enumerate() {
        let resolve = Resolve {
            approval,
            action,
            root: run.id,
            resolution: [Resolution::ApproveAndAlwaysAllowRecipient, Resolution::Reject][n],
            reason: Some(format!("since {canary}").into()),
            by: format!("user:{user}").into(),
            grant: (n == 0).then_some(grant),
            words: format!("said {canary}").into(),
        };
        assert_eq!(store.resolve(resolve).await.unwrap(), Resolved::Done);
    }
    let lease = store.take(run.id).await.unwrap().unwrap();
    let end = finished(lease, &run, RunStatus::Completed, vec![]);
    assert_eq!(store.finish(end).await.unwrap(), Committed::Written);
    grant
}

/// after an erasure no text of the user is in the database, and on SQLite not in its file. The rows, the counts, the
/// audit chain and all texts of others remain. What is in progress is left, until a later erasure.
pub(crate) async fn an_erasure_leaves_no_text_of_a_user_and_all_of_the_others(db: TestDb) {
    let store = db.open().await;
    for user in ["ann", "bob"] {
        let canary = format!("canary-of-{user}");
        for _ in 0..3 {
            plant_in(&store, of(user, 2), &canary).await;
        }
        let asked = asks(&store, user, &canary).await;
        let grant = ends(&store, user, &canary, asked).await;
        assert!(store.revoke(&tenant(), None, grant, "carol").await.unwrap());
    }
    // Its process works on it.
    let waiting = asks(&store, "ann", "canary-of-ann").await;
    let counts = "SELECT (SELECT COUNT(*) FROM decision_log), (SELECT COUNT(*) FROM tool_invocation_log), \
                  (SELECT COUNT(*) FROM audit)";
    let before = (db.everything().await, db.line(counts).await);
    assert!(before.0.contains("canary-of-ann"));

    let erased = erase(&store, "ann").await;
    assert_eq!((erased.decisions, erased.tool_invocations, erased.left), (4, 30, 1));
    let of_bob = |all: &str| all.matches("canary-of-bob").count();
    assert_eq!(of_bob(&db.everything().await), of_bob(&before.0));
    whole(&db).await;
    assert!(
        db.everything().await.contains("canary-of-ann"),
        "the waiting run is left"
    );

    let grant = ends(&store, "ann", "canary-of-ann", waiting).await;
    assert!(store.revoke(&tenant(), None, grant, "carol").await.unwrap());
    let erased = erase(&store, "ann").await;
    assert_eq!((erased.decisions, erased.left), (5, 0));
    let after = db.everything().await;
    assert_eq!(around(&after, "canary-of-ann"), None);
    assert_eq!(of_bob(&after), of_bob(&before.0));
    let entry = "SELECT kind, actor FROM audit ORDER BY number DESC LIMIT 1";
    assert_eq!(db.line(entry).await, "content_erased service:privacy");
    whole(&db).await;
    store.shutdown().await;
    if db.is_sqlite() {
        for entry in std::fs::read_dir(db.file().parent().unwrap()).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            let ann = "canary-of-ann".as_bytes();
            assert!(!bytes.windows(ann.len()).any(|window| window == ann));
        }
    }
}
