//! The audit log (R-18): append-only, one chain, and every tampering is found and named.

use std::sync::Arc;
use std::time::Duration;

use gavel::adapters::store::{
    AuditFilter, AuditKind, AuditLog, AuditRow, AuditSecrets, ContentKey, ContentMode, Finding, Head, Store,
    StoreConfig,
};
use gavel::api::runs::InDoubtCall;
use gavel::domain::action::{ActionStatus, Details, Resolution};
use gavel::domain::agent_run::RunStatus;
use gavel::domain::ids::{ActionId, ApprovalId, GrantId, TenantId};
use gavel::domain::tool::FailureCode;
use gavel::ports::actions::{Actions, Resolve, Resolved, Settle, SettleDone};
use gavel::ports::commit::{ActionOutcome, Committed, NewAction, Recorder};
use gavel::ports::records::{ClosedCall, Decisions as _, OpenCall};
use gavel::ports::runs::{Reopen, Runs, Started};
use serde_json::{Value, json};

use crate::commits::{Append, Writes, by_caller, entries, finished, reopen, suspend};
use crate::support::{
    T0, TestDb, begin, closed, done, failed, intent, new_run, open_decision, queued_run, raw, tenant, tool,
};

/// Verifies the audit log. Findings about triggers are omitted: an attacker who changes rows removes the triggers first,
/// and another test covers them.
pub(crate) async fn verify(db: &TestDb, kept: Vec<Head>) -> Vec<Finding> {
    let mut log = AuditLog::open(&db.url, &AuditSecrets::default()).await.unwrap();
    let verified = log.verify(kept, |_, _| {}).await.unwrap();
    log.close().await;
    assert_eq!(verified.found, verified.findings.len() as u64);
    let chain = |finding: &&Finding| !matches!(finding, Finding::Trigger(_));
    verified.findings.iter().filter(chain).cloned().collect()
}

pub(crate) async fn whole(db: &TestDb) {
    assert_eq!(verify(db, Vec::new()).await, []);
}

async fn rows(db: &TestDb) -> Vec<AuditRow> {
    let mut log = AuditLog::open(&db.url, &AuditSecrets::default()).await.unwrap();
    let rows = log.page(0, &AuditFilter::default()).await.unwrap();
    log.close().await;
    rows
}

/// The kinds of the entries of a subject, in order.
fn kinds(rows: &[AuditRow], subject: &impl ToString) -> Vec<String> {
    let of = rows.iter().filter(|row| row.subject == subject.to_string());
    of.map(|row| row.kind.clone()).collect()
}

fn detail(row: &AuditRow) -> Value {
    serde_json::from_str(&row.detail).unwrap()
}

fn texts(row: &AuditRow) -> Value {
    serde_json::from_str(row.texts.as_ref().unwrap()).unwrap()
}

fn sha256(text: &str) -> String {
    hex::encode(<sha2::Sha256 as sha2::Digest>::digest(text))
}

/// A decision with one effect: two entries.
pub(crate) async fn effect(store: &Store) -> OpenCall {
    let open = open_decision();
    let intent = intent(&open, 1);
    store.open(open.clone(), vec![intent.clone()]).await.unwrap();
    store.close(closed(open, vec![done(&intent)], true)).await.unwrap();
    intent
}

/// R-18: no entry can be changed, deleted or replaced, or inserted anywhere but at the end. The head only moves
/// forward.
pub(crate) async fn the_database_refuses_to_change_entries(db: TestDb) {
    let store = db.open().await;
    effect(&store).await;
    effect(&store).await;
    let before = db.rows("SELECT * FROM audit ORDER BY number").await;
    let columns = "format, at, kind, subject, tenant, actor, decision_id, action_id, tool, detail, texts, key_id, previous_hash, hash";
    let mut refused = vec![
        "UPDATE audit SET actor = 'mallory' WHERE number = 2".to_owned(),
        "UPDATE audit SET number = 9 WHERE number = 4".to_owned(),
        // Texts may be erased, and nothing else with them or in their place.
        "UPDATE audit SET texts = NULL, actor = 'mallory' WHERE number = 1".to_owned(),
        "UPDATE audit SET texts = 'x' WHERE number = 1".to_owned(),
        "DELETE FROM audit WHERE number = 4".to_owned(),
        "DELETE FROM audit".to_owned(),
        // Between others, beyond the end, and at the end without following it.
        format!("INSERT INTO audit (number, {columns}) SELECT 2, {columns} FROM audit WHERE number = 1"),
        format!("INSERT INTO audit (number, {columns}) SELECT 9, {columns} FROM audit WHERE number = 4"),
        format!("INSERT INTO audit (number, {columns}) SELECT 5, {columns} FROM audit WHERE number = 3"),
        "UPDATE audit_head SET number = 3".to_owned(),
        "UPDATE audit_head SET number = 6".to_owned(),
        "UPDATE audit_head SET hash = 'x'".to_owned(),
        "DELETE FROM audit_head".to_owned(),
        "INSERT INTO audit_head VALUES (1, 0, 'x')".to_owned(),
        "INSERT INTO audit_head VALUES (2, 0, 'x')".to_owned(),
    ];
    if db.is_sqlite() {
        for replacing in [
            "INSERT OR REPLACE",
            "REPLACE",
            "PRAGMA recursive_triggers = OFF; REPLACE",
        ] {
            refused.push(format!(
                "{replacing} INTO audit (number, {columns}) SELECT 4, {columns} FROM audit WHERE number = 4"
            ));
            // One that follows the head, and would replace an entry of the same subject.
            refused.push(format!(
                "{replacing} INTO audit (number, {columns}) SELECT 5, format, at, kind, subject, tenant, actor, decision_id, \
                 action_id, tool, detail, texts, key_id, hash, 'x' FROM audit WHERE number = 4"
            ));
            refused.push(format!("{replacing} INTO audit_head VALUES (1, 0, 'x')"));
        }
        refused.push("UPDATE OR REPLACE audit SET number = 3 WHERE number = 4".to_owned());
        refused.push("UPDATE audit_head SET number = 5, hash = 'x'".to_owned());
    } else {
        for text in [
            "TRUNCATE audit",
            "TRUNCATE audit_head",
            "TRUNCATE audit, audit_head CASCADE",
        ] {
            refused.push(text.to_owned());
        }
        refused.push(
            "INSERT INTO audit SELECT * FROM audit WHERE number = 4 ON CONFLICT (number) DO UPDATE SET actor = 'x'"
                .to_owned(),
        );
    }
    for sql in refused {
        let error = db.try_run(&sql).await.expect_err(&sql).to_string();
        assert!(error.contains("audit"), "{sql}: {error}");
    }
    assert_eq!(db.rows("SELECT * FROM audit ORDER BY number").await, before);
    // Gavel continues to work.
    effect(&store).await;
    whole(&db).await;
    assert_eq!(rows(&db).await.len(), 6);
}

/// R-18: an effect has an entry for its intent, with user, tool, time and arguments, and another one for its outcome.
pub(crate) async fn an_effect_is_entered_before_it_is_sent_and_when_its_outcome_is_known(db: TestDb) {
    let store = db.open().await;
    let open = open_decision();
    let intents: Vec<_> = (1..=5).map(|n| intent(&open, n)).collect();
    store.open(open.clone(), intents[..1].to_vec()).await.unwrap();
    let entered = rows(&db).await;
    assert_eq!(entered.len(), 1);
    let first = &entered[0];
    assert_eq!(
        (&*first.kind, &*first.actor, &*first.tenant, first.tool.as_deref()),
        ("effect_intended", "ann", "default", Some("add_task"))
    );
    assert_eq!(first.decision_id, Some(open.id.to_string()));
    assert_eq!(first.action_id, Some(intents[0].id.to_string()));
    assert_eq!(
        detail(first),
        json!({
            "surface": "chat", "user": "ann", "server": "tasks", "tool_digest": "d1gest",
            "texts_sha256": sha256(first.texts.as_ref().unwrap()),
            "arguments_sha256": sha256(r#"{"description":"call mom"}"#),
            "idempotency_key": "key-1",
        })
    );
    assert_eq!(texts(first)["arguments"], r#"{"description":"call mom"}"#);
    // Later ones take their user from the decision.
    store.intend(intents[1..3].to_vec()).await.unwrap();
    let entered = rows(&db).await;
    assert_eq!(entered.len(), 3);
    assert_eq!(
        (&*entered[2].actor, &detail(&entered[2])["surface"]),
        ("ann", &json!("chat"))
    );
    let calls = vec![
        done(&intents[0]),
        failed(&intents[1], FailureCode::ToolError, "no such task"),
        failed(&intents[2], FailureCode::InDoubt, "it did not answer"),
        // Never sent.
        ClosedCall {
            started_at: None,
            ..failed(&intents[3], FailureCode::Denied, "denied")
        },
        // Announced, and never sent: the service stopped before.
        ClosedCall {
            started_at: None,
            ..failed(&intents[4], FailureCode::NotRecorded, "cut short")
        },
    ];
    store.intend(vec![intents[4].clone()]).await.unwrap();
    store.close(closed(open, calls, true)).await.unwrap();
    let entered = rows(&db).await;
    let of = |n: usize| kinds(&entered, &intents[n].id);
    assert_eq!(of(0), ["effect_intended", "effect_completed"]);
    assert_eq!(of(1), ["effect_intended", "effect_failed"]);
    assert_eq!(of(2), ["effect_intended", "effect_in_doubt"]);
    assert_eq!(of(3), [""; 0]);
    assert_eq!(of(4), ["effect_intended"], "a call that was never sent has no end");
    assert_eq!(detail(&entered[5])["error_code"], "tool_error");
    whole(&db).await;
}

/// The hot path costs nothing: a read makes no entry, and does not touch the head.
pub(crate) async fn a_read_makes_no_entry(db: TestDb) {
    let store = db.open().await;
    // A transaction that uses the head would fail here, with everything else in it.
    db.run("DROP TABLE audit_head").await;
    let open = open_decision();
    let mut reads = tool("list_tasks");
    Arc::get_mut(&mut reads).unwrap().side_effect = false;
    let call = ClosedCall {
        open: OpenCall {
            tool: Some(reads),
            ..intent(&open, 1)
        },
        ..done(&intent(&open, 1))
    };
    store.close(closed(open, vec![call], false)).await.unwrap();
    assert_eq!(db.count("SELECT COUNT(*) FROM audit").await, 0);
}

/// Promise: at most once. A commit without an answer that is repeated makes no duplicate entry.
pub(crate) async fn a_repeated_commit_is_entered_once(db: TestDb) {
    let store = db.open().await;
    let open = open_decision();
    let intents = vec![intent(&open, 1)];
    for _ in 0..2 {
        store.open(open.clone(), intents.clone()).await.unwrap();
        store.intend(intents.clone()).await.unwrap();
    }
    for _ in 0..2 {
        let decision = closed(open.clone(), vec![done(&intents[0])], true);
        store.close(decision).await.unwrap();
    }
    assert_eq!(
        kinds(&rows(&db).await, &intents[0].id),
        ["effect_intended", "effect_completed"]
    );
    whole(&db).await;
}

/// Promise: truthful states. A call that a dead process left is entered as in doubt. If that process reports its
/// outcome later, that is entered too.
pub(crate) async fn a_call_ended_by_recovery_is_entered(db: TestDb) {
    let dead = db.open().await;
    let open = open_decision();
    let intents = vec![intent(&open, 1)];
    dead.open(open.clone(), intents.clone()).await.unwrap();
    let _next = db.open_after_all_expired().await;
    let in_doubt = ["effect_intended", "effect_in_doubt"];
    assert_eq!(kinds(&rows(&db).await, &intents[0].id), in_doubt);
    whole(&db).await;
    dead.close(closed(open, vec![done(&intents[0])], true)).await.unwrap();
    let entered = rows(&db).await;
    assert_eq!(kinds(&entered, &intents[0].id)[2], "effect_completed");
    assert_eq!(entered.last().unwrap().actor, "ann");
    whole(&db).await;
}

/// `records.content` applies to audit rows; the hash of the arguments exists in each mode. R-18: arguments are reported
/// missing only if the mode keeps them.
pub(crate) async fn content_is_kept_according_to_records_content(db: TestDb) {
    for (mode, kept) in [
        (ContentMode::None, false),
        (ContentMode::Hash(ContentKey::new(b"a key")), true),
    ] {
        let store = db.open_with(mode).await;
        let intent = effect(&store).await;
        let entered = rows(&db).await;
        let row = entered.iter().find(|row| row.subject == intent.id.to_string()).unwrap();
        let detail = detail(row);
        assert_eq!(detail["arguments_sha256"].as_str().unwrap().len(), 64);
        let arguments = row.texts.is_some().then(|| texts(row));
        let arguments = arguments.as_ref().and_then(|texts| texts["arguments"].as_str());
        assert_eq!(
            arguments.is_some_and(|text| text.starts_with("\"hmac:")),
            kept,
            "{row:?}"
        );
        assert!(!format!("{row:?}").contains("mom"), "{row:?}");
        store.shutdown().await;
        whole(&db).await;
        if kept {
            db.run("UPDATE tool_invocation_log SET arguments = NULL").await;
            let missed = Finding::EffectDiffers {
                decision_id: intent.decision.to_string(),
                action_id: intent.id.to_string(),
                differs: vec!["arguments"],
            };
            assert_eq!(verify(&db, Vec::new()).await, [missed]);
        }
    }
}

/// R-18: SQLite accepts any type of value in any column. A type that gavel never writes is found, and does not stop the
/// verification.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_of_another_type_is_found_and_named() {
    let db = TestDb::sqlite().await;
    let store = db.open().await;
    effect(&store).await;
    effect(&store).await;
    store.shutdown().await;
    db.run(
        "DROP TRIGGER audit_follows; DROP TRIGGER audit_moves_head; DROP TRIGGER audit_keeps; DROP TRIGGER audit_stays; \
         DROP TRIGGER audit_head_advances; DROP TRIGGER audit_head_stays; DROP TRIGGER audit_head_is_one; \
         CREATE TABLE audit_was AS SELECT * FROM audit; CREATE TABLE head_was AS SELECT * FROM audit_head",
    )
    .await;
    for (sql, expected) in [
        (
            "UPDATE audit SET actor = x'41' WHERE number = 2",
            Finding::Changed { number: 2 },
        ),
        (
            "UPDATE audit SET actor = CAST(x'ff' AS TEXT) WHERE number = 2",
            Finding::Changed { number: 2 },
        ),
        (
            "UPDATE audit SET at = 'x' WHERE number = 3",
            Finding::Changed { number: 3 },
        ),
        (
            "UPDATE audit SET format = 'x' WHERE number = 3",
            Finding::Changed { number: 3 },
        ),
        (
            "UPDATE audit SET decision_id = CAST(decision_id AS BLOB) WHERE number = 2",
            Finding::Changed { number: 2 },
        ),
        (
            "UPDATE audit SET actor = CAST(actor AS BLOB) WHERE number = 3",
            Finding::Changed { number: 3 },
        ),
        ("UPDATE audit_head SET number = 'x'", Finding::NoHead),
    ] {
        db.run(sql).await;
        assert_eq!(verify(&db, Vec::new()).await, [expected], "{sql}");
        db.run(
            "DELETE FROM audit; INSERT INTO audit SELECT * FROM audit_was; DELETE FROM audit_head; \
             INSERT INTO audit_head SELECT * FROM head_was",
        )
        .await;
    }
    db.run("UPDATE audit SET number = 9223372036854775807 WHERE number = 4")
        .await;
    let found = verify(&db, Vec::new()).await;
    assert!(
        found.contains(&Finding::Missing {
            from: 4,
            to: i64::MAX - 1
        }),
        "{found:?}"
    );
    for number in ["1.25", "'x'", "x'01'"] {
        db.run("DELETE FROM audit; INSERT INTO audit SELECT * FROM audit_was")
            .await;
        db.run(&format!("UPDATE audit SET number = {number} WHERE number = 1"))
            .await;
        let found = verify(&db, Vec::new()).await;
        let outside = |finding: &Finding| matches!(finding, Finding::AddedOutside { number } if *number < 1);
        assert!(found.iter().any(outside), "{number}: {found:?}");
        assert!(
            found.contains(&Finding::Missing { from: 1, to: 1 }),
            "{number}: {found:?}"
        );
    }
}

/// Removes the triggers that keep the log append-only.
async fn unguard(db: &TestDb) {
    db.run(match db.is_sqlite() {
        true => {
            "DROP TRIGGER audit_follows; DROP TRIGGER audit_moves_head; DROP TRIGGER audit_keeps; DROP TRIGGER audit_stays; \
             DROP TRIGGER audit_head_advances; DROP TRIGGER audit_head_stays; DROP TRIGGER audit_head_is_one"
        }
        false => "ALTER TABLE audit DISABLE TRIGGER ALL; ALTER TABLE audit_head DISABLE TRIGGER ALL",
    })
    .await;
}

/// The rows that prove a decision are verified without the whole chain: each with its HMAC and the row before it.
pub(crate) async fn the_rows_of_one_decision_are_verified_without_the_others(db: TestDb) {
    let store = db.open().await;
    let effects = [effect(&store).await, effect(&store).await, effect(&store).await];
    let proofs = async || {
        let mut proofs = Vec::new();
        for effect in &effects {
            let evidence = store
                .evidence(&tenant(), effect.decision, Some(effect.id))
                .await
                .unwrap();
            let numbers: Vec<_> = evidence.audit.rows.iter().map(|row| row.number).collect();
            proofs.push((numbers, evidence.audit.verified));
        }
        proofs
    };
    let all = |verified: [bool; 3]| -> Vec<_> {
        let numbers = [vec![1, 2], vec![3, 4], vec![5, 6]];
        numbers.into_iter().zip(verified.map(Some)).collect()
    };
    assert_eq!(proofs().await, all([true; 3]));
    let other = store
        .evidence(&tenant(), effects[0].decision, Some(effects[1].id))
        .await;
    assert_eq!(
        (other.unwrap().audit.rows.len(), other_tenant(&store, &effects[0]).await),
        (0, 0)
    );
    unguard(&db).await;
    db.run("UPDATE audit SET actor = 'mallory' WHERE number = 3").await;
    assert_eq!(proofs().await, all([true, false, true]));
    db.run("UPDATE audit SET hash = previous_hash WHERE number = 4").await;
    assert_eq!(proofs().await, all([true, false, false]), "row 5 follows another row 4");
}

async fn other_tenant(store: &Store, effect: &OpenCall) -> usize {
    let tenant = TenantId::parse("another").unwrap();
    let evidence = store.evidence(&tenant, effect.decision, None).await.unwrap();
    evidence.audit.rows.len()
}

/// R-18: an attacker with access to the database removes the triggers and changes rows. Each kind of change is found
/// and named.
pub(crate) async fn every_tampering_is_found_and_named(db: TestDb) {
    let store = db.open().await;
    let mut last = None;
    for _ in 0..4 {
        last = Some(effect(&store).await);
    }
    let last = last.unwrap();
    store.shutdown().await;
    whole(&db).await;
    let mut log = AuditLog::open(&db.url, &AuditSecrets::default()).await.unwrap();
    let head = log.head().await.unwrap().unwrap();
    log.close().await;
    assert_eq!(head.number, 8);
    let entered = rows(&db).await;
    let at = |number: usize| Head {
        number: number as i64,
        hash: entered[number - 1].hash.clone(),
    };
    assert_eq!(
        verify(&db, vec![head.clone(), at(3)]).await,
        [],
        "the kept row is unchanged"
    );

    unguard(&db).await;
    db.run(
        "CREATE TABLE audit_was AS SELECT * FROM audit; CREATE TABLE head_was AS SELECT * FROM audit_head; \
         CREATE TABLE log_was AS SELECT * FROM tool_invocation_log",
    )
    .await;
    let columns = "format, at, kind, tenant, actor, decision_id, action_id, tool, detail, key_id";
    let add = format!(
        "INSERT INTO audit (number, {columns}, subject, previous_hash, hash) \
         SELECT 9, {columns}, 'forged', hash, REPLACE(previous_hash, '0', 'f') FROM audit WHERE number = 8"
    );
    let back = format!(
        "DELETE FROM audit WHERE number > 6; UPDATE audit_head SET number = 6, hash = '{}'",
        at(6).hash
    );
    let (action, decision) = (last.id.to_string(), last.decision.to_string());
    let forged = ActionId::new().to_string();
    let log = "decision_id, tenant, user_id, tool, server, tool_digest, side_effect, arguments, argument_bytes, idempotency_key, status, \
               created_at, started_at, duration_us, result, error_code, error_message";
    let outside = format!(
        "INSERT INTO tool_invocation_log (id, sequence, {log}) SELECT '{forged}', 7, {log} FROM tool_invocation_log \
         WHERE id = '{action}'"
    );
    let otherwise = format!(
        "UPDATE tool_invocation_log SET status = 'failed', result = NULL, error_code = 'tool_error' WHERE id = '{action}'"
    );
    let invalid = Head {
        number: 8,
        hash: at(7).hash,
    };
    let none = Vec::new;
    for (name, sql, kept, expected) in [
        (
            "changed",
            "UPDATE audit SET actor = 'mallory' WHERE number = 3".to_owned(),
            none(),
            vec![Finding::Changed { number: 3 }],
        ),
        (
            "changed in its time alone",
            "UPDATE audit SET at = at + 1 WHERE number = 5".to_owned(),
            none(),
            vec![Finding::Changed { number: 5 }],
        ),
        (
            "changed at the end",
            "UPDATE audit SET detail = '{}' WHERE number = 8".to_owned(),
            none(),
            vec![Finding::ChangedOrAdded { number: 8 }],
        ),
        (
            "changed at the end, of which a head was kept",
            "UPDATE audit SET detail = '{}' WHERE number = 8".to_owned(),
            vec![head.clone()],
            vec![Finding::Changed { number: 8 }],
        ),
        (
            "another key claimed",
            "UPDATE audit SET key_id = 'another' WHERE number = 2".to_owned(),
            none(),
            vec![Finding::UnknownKey {
                from: 2,
                to: 2,
                rows: 1,
                key_id: "another".to_owned(),
            }],
        ),
        (
            "missing",
            "DELETE FROM audit WHERE number = 3 OR number = 4".to_owned(),
            none(),
            vec![Finding::Missing { from: 3, to: 4 }],
        ),
        (
            "missing at the beginning",
            "DELETE FROM audit WHERE number = 1".to_owned(),
            none(),
            vec![Finding::Missing { from: 1, to: 1 }],
        ),
        (
            "reordered",
            "UPDATE audit SET number = 103 WHERE number = 3; UPDATE audit SET number = 3 WHERE number = 6; \
             UPDATE audit SET number = 6 WHERE number = 103"
                .to_owned(),
            none(),
            vec![
                Finding::Reordered {
                    number: 3,
                    written_as: 6,
                },
                Finding::Reordered {
                    number: 6,
                    written_as: 3,
                },
            ],
        ),
        (
            "taken out, and the rest moved up",
            "DELETE FROM audit WHERE number = 7; UPDATE audit SET number = 7 WHERE number = 8".to_owned(),
            none(),
            vec![
                Finding::Reordered {
                    number: 7,
                    written_as: 8,
                },
                Finding::CutOff { from: 8, to: 8 },
            ],
        ),
        (
            "replaced, with a hash of its own",
            format!(
                "UPDATE audit SET actor = 'mallory', hash = '{}' WHERE number = 4",
                "ab".repeat(32)
            ),
            none(),
            vec![Finding::AddedOutside { number: 4 }],
        ),
        (
            "added at the end",
            add.clone(),
            none(),
            vec![Finding::AddedOutside { number: 9 }],
        ),
        (
            "added at the end, and the head with it",
            format!("{add}; UPDATE audit_head SET number = 9, hash = (SELECT hash FROM audit WHERE number = 9)"),
            none(),
            vec![Finding::ChangedOrAdded { number: 9 }],
        ),
        (
            "cut off",
            "DELETE FROM audit WHERE number > 6".to_owned(),
            none(),
            vec![Finding::CutOff { from: 7, to: 8 }],
        ),
        (
            "cut off with the head, which was kept in another place",
            back,
            vec![head.clone()],
            vec![Finding::CutOff { from: 7, to: 8 }],
        ),
        (
            "an invalid head",
            format!("UPDATE audit_head SET hash = '{}'", invalid.hash),
            none(),
            vec![Finding::HeadMismatch {
                head: invalid,
                expected: head.clone(),
            }],
        ),
        (
            "no head",
            "DELETE FROM audit_head".to_owned(),
            none(),
            vec![Finding::NoHead],
        ),
        (
            "rewritten",
            String::new(),
            vec![Head {
                number: 5,
                hash: at(4).hash,
            }],
            vec![Finding::Rewritten {
                kept: Head {
                    number: 5,
                    hash: at(4).hash,
                },
                hash: at(5).hash,
            }],
        ),
        (
            "an effect that was not entered",
            outside,
            none(),
            vec![Finding::NotEntered {
                decision_id: decision.clone(),
                action_id: forged.clone(),
                status: "completed".to_owned(),
            }],
        ),
        (
            "an effect with other arguments",
            format!("UPDATE tool_invocation_log SET arguments = '{{}}' WHERE id = '{action}'"),
            none(),
            vec![Finding::EffectDiffers {
                decision_id: decision.clone(),
                action_id: action.clone(),
                differs: vec!["arguments"],
            }],
        ),
        (
            "an effect whose arguments are gone",
            format!("UPDATE tool_invocation_log SET arguments = NULL WHERE id = '{action}'"),
            none(),
            vec![Finding::EffectDiffers {
                decision_id: decision.clone(),
                action_id: action.clone(),
                differs: vec!["arguments"],
            }],
        ),
        (
            "an effect with another tool, user, tenant, server, time and side-effect flag",
            format!(
                "UPDATE tool_invocation_log SET tool = 'x', user_id = 'x', tenant = 'x', server = 'x', side_effect = FALSE, \
                 started_at = 1 WHERE id = '{action}'"
            ),
            none(),
            vec![Finding::EffectDiffers {
                decision_id: decision.clone(),
                action_id: action.clone(),
                differs: vec!["tool", "tenant", "user", "server", "side-effect flag"],
            }],
        ),
        (
            "an effect with another outcome",
            otherwise,
            none(),
            vec![Finding::OutcomeMismatch {
                decision_id: decision.clone(),
                action_id: action.clone(),
                status: "failed".to_owned(),
            }],
        ),
    ] {
        if !sql.is_empty() {
            db.run(&sql).await;
        }
        let mut found = verify(&db, kept).await;
        // An effect whose entries are removed is reported as well, which is correct and not checked here.
        if !name.contains("an effect") {
            found.retain(|finding| !matches!(finding, Finding::NotEntered { .. } | Finding::OutcomeMismatch { .. }));
        }
        assert_eq!(found, expected, "{name}");
        db.run(
            "DELETE FROM audit; INSERT INTO audit SELECT * FROM audit_was; DELETE FROM audit_head; \
             INSERT INTO audit_head SELECT * FROM head_was; DELETE FROM tool_invocation_log; \
             INSERT INTO tool_invocation_log SELECT * FROM log_was",
        )
        .await;
    }
    whole(&db).await;
    // Whatever happens to the chain, the tool-call log shows an effect whose entries were removed.
    db.run(&format!(
        "DELETE FROM audit WHERE subject = '{action}'; UPDATE audit_head SET number = 6, hash = '{}'",
        at(6).hash
    ))
    .await;
    let found = verify(&db, Vec::new()).await;
    assert_eq!(
        found,
        [Finding::NotEntered {
            decision_id: decision,
            action_id: action,
            status: "completed".to_owned()
        }]
    );
}

/// Several writers of several processes make one chain without a gap, and never deadlock.
pub(crate) async fn many_writers_make_one_chain(db: TestDb) {
    let stores = [db.open().await, db.open().await];
    let mut working = tokio::task::JoinSet::new();
    for n in 0..24_usize {
        let store = Arc::clone(&stores[n % 2]);
        working.spawn(async move {
            for _ in 0..10 {
                effect(&store).await;
            }
        });
    }
    working.join_all().await;
    assert_eq!(db.count("SELECT COUNT(*) FROM audit").await, 480);
    assert_eq!(db.line("SELECT number FROM audit_head").await, "480");
    whole(&db).await;
}

/// The key may be changed: older rows are verified with the old key, and cannot be verified without it.
pub(crate) async fn a_key_may_be_changed(db: TestDb) {
    let secrets = |current: &str, old: &[&str]| AuditSecrets {
        current: Some(current.into()),
        old: old.iter().map(|key| (*key).into()).collect(),
    };
    for key in ["the first key of the audit", "the second key of the audit"] {
        let config = StoreConfig {
            audit: secrets(key, &[]),
            ..db.config()
        };
        let store = Store::open(config).await.unwrap();
        effect(&store).await;
        store.shutdown().await;
    }
    let find = async |secrets: AuditSecrets| {
        let mut log = AuditLog::open(&db.url, &secrets).await.unwrap();
        log.verify(Vec::new(), |_, _| {}).await.unwrap().findings.to_vec()
    };
    let both = secrets("the second key of the audit", &["the first key of the audit"]);
    assert_eq!(find(both).await, []);
    let found = find(secrets("the second key of the audit", &[])).await;
    assert!(
        matches!(
            found.as_slice(),
            [Finding::UnknownKey {
                from: 1,
                to: 2,
                rows: 2,
                ..
            }]
        ),
        "{found:?}"
    );
}

/// R-18: an entry and the change that it reports are committed together, or neither is.
pub(crate) async fn a_part_of_a_commit_that_fails_enters_nothing(db: TestDb) {
    let store = db.open().await;
    let unknown = open_decision();
    let refused = store.intend(vec![intent(&unknown, 1)]).await;
    refused.expect_err("an intent without its decision");
    assert_eq!(rows(&db).await, []);
    effect(&store).await;
    assert_eq!(rows(&db).await.len(), 2);
    whole(&db).await;
}

pub(crate) fn asked(id: ActionId, approval: ApprovalId) -> NewAction {
    NewAction {
        id,
        approval: Some((approval, Duration::from_secs(3600))),
        sequence: 1,
        tool: (&*tool("send")).into(),
        arguments: raw(r#"{"to":"bob@example.com"}"#),
        model: "gemini-test".into(),
        policy: None,
        details: Details {
            reason: "it sends".to_owned(),
            recipients: serde_json::from_value(json!({"to": ["bob@example.com"]})).unwrap(),
            ..Details::default()
        },
        grant: None,
        words: "May I?".into(),
    }
}

/// R-14, R-18: an in-doubt call of a resumable run is settled with the resume, in the action, the tool-call log and the
/// audit log. If the run pauses again before it has read the settlement, another resume may report another outcome. Both
/// are entered, and the last one counts.
pub(crate) async fn each_settlement_is_entered_and_the_last_counts(db: TestDb) {
    let store = db.open().await;
    let run = new_run();
    let lease = begin(&store, &run).await;
    let sent = OpenCall {
        tool: Some(tool("send")),
        created_at: T0,
        ..intent(&run.decision, 1)
    };
    let action = NewAction {
        approval: None,
        ..asked(sent.id, ApprovalId::new())
    };
    let append = Append {
        intents: vec![sent.clone()],
        actions: vec![action],
        ..entries(lease, 1..=1)
    };
    assert_eq!(store.append(append).await.unwrap(), Committed::Written);
    let settle = |by: &str, happened| Settle {
        words: "said".into(),
        action: sent.id,
        root: run.id,
        happened,
        by: by.into(),
    };
    let mut call = failed(&sent, FailureCode::InDoubt, "it did not answer");
    call.open.name = "send".into();
    let mut end = finished(lease, &run, RunStatus::Paused, vec![call]);
    end.in_doubt = vec![InDoubtCall {
        action_id: sent.id,
        tool: "send".to_owned(),
        parameters: json!({}),
    }];
    end.outcomes = vec![ActionOutcome {
        id: sent.id,
        status: ActionStatus::InDoubt,
        error: Some((FailureCode::InDoubt, "it did not answer".into())),
        words: None,
    }];
    assert_eq!(store.finish(end).await.unwrap(), Committed::Written);
    assert_eq!(
        store.settle(settle("dave", true)).await.unwrap(),
        SettleDone::WithRun,
        "the run resumes with the settlement"
    );
    let state = "SELECT a.status, a.settled_by, t.status FROM agent_action a JOIN tool_invocation_log t ON t.id = a.id";
    assert_eq!(db.line(state).await, "in_doubt - in_doubt");
    let mut subjects = Vec::new();
    for (attempt, happened, reported) in [(0, true, "completed"), (1, false, "failed")] {
        let by = "grace";
        let resuming = Reopen {
            session: None,
            place: by_caller(false, None, &[(sent.id, happened)]),
            ..reopen(run.id, attempt)
        };
        let Started::Now(Some(lease)) = store.reopen(resuming).await.unwrap() else {
            panic!("it is reopened")
        };
        assert_eq!(db.line(state).await, format!("{reported} {by} {reported}"));
        let late = store.settle(settle("dave", happened)).await.unwrap();
        assert!(matches!(late, SettleDone::NotInDoubt(_)), "{late:?}");
        let again = finished(lease, &run, RunStatus::Paused, vec![]);
        assert_eq!(store.finish(again).await.unwrap(), Committed::Written);
        subjects.push((
            format!("{}:{}:{}", sent.id, run.id, attempt + 1),
            by.to_owned(),
            happened,
        ));
    }
    let entered = rows(&db).await;
    let settled = entered
        .iter()
        .filter(|row| row.kind == AuditKind::DoubtSettled.as_str());
    let settled: Vec<_> = settled
        .map(|row| {
            assert_eq!(row.action_id, Some(sent.id.to_string()));
            (row.subject.clone(), row.actor.clone(), detail(row)["happened"] == true)
        })
        .collect();
    assert_eq!(settled, subjects);
    whole(&db).await;
}

/// R-14, R-15, R-18: approval requests, resolutions, grants, settlements, definitions and cancellations are entered,
/// each with its actor.
pub(crate) async fn decisions_of_people_are_entered(db: TestDb) {
    let store = db.open().await;
    let run = new_run();
    let lease = begin(&store, &run).await;
    let actions: Vec<_> = (0..3).map(|_| (ActionId::new(), ApprovalId::new())).collect();
    let suspend = suspend(
        lease,
        run.id,
        actions.iter().map(|(id, approval)| asked(*id, *approval)).collect(),
    );
    assert_eq!(store.commit(suspend).await.unwrap(), Committed::Written);
    let grant = GrantId::new();
    let resolve = |n: usize, resolution, grant| Resolve {
        approval: actions[n].1,
        action: actions[n].0,
        root: run.id,
        resolution,
        reason: Some("because".into()),
        by: "carol".into(),
        grant,
        words: "Said.".into(),
    };
    let always = resolve(0, Resolution::ApproveAndAlwaysAllowRecipient, Some(grant));
    for answer in [Resolved::Done, Resolved::Again] {
        assert_eq!(store.resolve(always.clone()).await.unwrap(), answer);
    }
    let no = resolve(1, Resolution::Reject, None);
    assert_eq!(store.resolve(no).await.unwrap(), Resolved::Done);
    let third = actions[2].0;
    db.run(&format!("UPDATE agent_action SET expires_at = 0 WHERE id = '{third}'"))
        .await;
    assert_eq!(store.expire(10).await.unwrap(), [run.id]);
    // It continues, is sent, and its process dies before it receives the outcome.
    let lease = store.take(run.id).await.unwrap().unwrap();
    let sent = OpenCall {
        id: actions[0].0,
        tool: Some(tool("send")),
        created_at: T0,
        decision: run.decision.id,
        ..intent(&run.decision, 1)
    };
    let append = Append {
        intents: vec![sent.clone()],
        asked: vec![sent.id],
        ..entries(lease, 1..=1)
    };
    assert_eq!(store.append(append).await.unwrap(), Committed::Written);
    let mut call = failed(&sent, FailureCode::InDoubt, "it did not answer");
    call.open.name = "send".into();
    let mut end = finished(lease, &run, RunStatus::Paused, vec![call]);
    end.outcomes = vec![ActionOutcome {
        id: sent.id,
        status: ActionStatus::InDoubt,
        error: Some((FailureCode::InDoubt, "it did not answer".into())),
        words: None,
    }];
    assert_eq!(store.finish(end).await.unwrap(), Committed::Written);
    let settle = Settle {
        words: "said".into(),
        action: sent.id,
        root: run.id,
        happened: true,
        by: "dave".into(),
    };
    for answer in [SettleDone::Done, SettleDone::Again] {
        assert_eq!(store.settle(settle.clone()).await.unwrap(), answer);
    }
    for (by, there) in [("erin", true), ("erin", true), ("frank", false)] {
        assert_eq!(store.revoke(&tenant(), None, grant, by).await.unwrap(), there);
    }
    // The request that resumes the paused run settles the calls that are still open.
    let other = ActionId::new();
    let resuming = Reopen {
        session: None,
        place: by_caller(true, None, &[(other, false)]),
        ..reopen(run.id, 0)
    };
    assert_eq!(store.reopen(resuming).await.unwrap(), Started::Now(None));
    let waiting = queued_run();
    store.create(waiting.clone()).await.unwrap();
    for _ in 0..2 {
        store.cancel(waiting.id, "frank").await.unwrap();
    }

    let entered = rows(&db).await;
    let of = |subject: &dyn ToString| -> Vec<(String, String)> {
        let of = entered.iter().filter(|row| row.subject == subject.to_string());
        of.map(|row| (row.kind.clone(), row.actor.clone())).collect()
    };
    let pairs = |expected: &[(AuditKind, &str)]| -> Vec<(String, String)> {
        let pair = |(kind, by): &(AuditKind, &str)| (kind.as_str().to_owned(), (*by).to_owned());
        expected.iter().map(pair).collect()
    };
    assert_eq!(
        of(&actions[0].0),
        pairs(&[
            (AuditKind::ApprovalRequested, "ann"),
            (AuditKind::ApprovalResolved, "carol"),
            (AuditKind::EffectIntended, "ann"),
            (AuditKind::EffectInDoubt, "ann"),
            (AuditKind::DoubtSettled, "dave"),
        ])
    );
    assert_eq!(
        of(&actions[1].0),
        pairs(&[
            (AuditKind::ApprovalRequested, "ann"),
            (AuditKind::ApprovalResolved, "carol")
        ])
    );
    assert_eq!(
        of(&third),
        pairs(&[
            (AuditKind::ApprovalRequested, "ann"),
            (AuditKind::ApprovalExpired, "gavel")
        ])
    );
    assert_eq!(
        of(&grant),
        pairs(&[(AuditKind::GrantCreated, "carol"), (AuditKind::GrantRevoked, "erin")])
    );
    let by_resume = format!("{other}:{}:1", run.id);
    assert_eq!(of(&by_resume), pairs(&[(AuditKind::DoubtSettled, "grace")]));
    assert_eq!(of(&waiting.id), pairs(&[(AuditKind::RunCancelled, "frank")]));
    let row = |kind: AuditKind| entered.iter().find(|row| row.kind == kind.as_str()).unwrap();
    assert_eq!(detail(row(AuditKind::ApprovalExpired))["why"], "timed_out");
    let resolved = detail(row(AuditKind::ApprovalResolved));
    assert_eq!(
        (
            &resolved["decision"],
            &texts(row(AuditKind::ApprovalResolved))["reason"],
            &resolved["user"],
            &resolved["surface"]
        ),
        (
            &json!("approve_and_always_allow_recipient"),
            &json!("because"),
            &json!("ann"),
            &json!("agent")
        )
    );
    assert_eq!(
        texts(row(AuditKind::GrantCreated))["recipients"],
        r#"{"to":["bob@example.com"]}"#
    );
    assert_eq!(detail(row(AuditKind::DoubtSettled))["happened"], true);
    assert_eq!(entered.iter().filter(|row| row.tenant != "default").count(), 0);
    whole(&db).await;
    // R-14: the outcome that a person reported for an in-doubt call is its outcome in the tool-call log and in the
    // action.
    let reported =
        |status: &str| format!("UPDATE tool_invocation_log SET status = '{status}', error_code = 'tool_error'");
    for hidden in [
        "status = 'expired', started_at = NULL",
        "status = 'failed', error_code = 'tool_error', side_effect = FALSE",
        "status = 'executing', completed_at = NULL",
    ] {
        db.run("CREATE TABLE kept AS SELECT * FROM agent_action").await;
        db.run(&format!("UPDATE agent_action SET {hidden} WHERE id = '{}'", sent.id))
            .await;
        let otherwise = Finding::ApprovalDiffers {
            action_id: sent.id.to_string(),
            differs: vec!["outcome"],
        };
        assert_eq!(verify(&db, Vec::new()).await, [otherwise], "{hidden}");
        db.run("DELETE FROM agent_action; INSERT INTO agent_action SELECT * FROM kept; DROP TABLE kept")
            .await;
    }
    let result = "result = NULL, error_code = NULL, error_message = NULL";
    db.run(&format!("UPDATE tool_invocation_log SET status = 'started', {result}"))
        .await;
    let found = verify(&db, Vec::new()).await;
    assert!(
        matches!(&found[..], [Finding::OutcomeMismatch { status, .. }] if status == "started"),
        "{found:?}"
    );
    db.run("UPDATE tool_invocation_log SET status = 'completed'").await;
    whole(&db).await;
    for status in ["failed", "in_doubt"] {
        db.run(&reported(status)).await;
        let otherwise = Finding::OutcomeMismatch {
            decision_id: run.id.to_string(),
            action_id: sent.id.to_string(),
            status: status.to_owned(),
        };
        assert_eq!(verify(&db, Vec::new()).await, [otherwise]);
        db.run("UPDATE tool_invocation_log SET status = 'completed', error_code = NULL, error_message = NULL")
            .await;
        let code = "error_code = 'tool_error'";
        db.run(&format!(
            "UPDATE agent_action SET status = '{status}', {code} WHERE id = '{}'",
            sent.id
        ))
        .await;
        let otherwise = Finding::ApprovalDiffers {
            action_id: sent.id.to_string(),
            differs: vec!["outcome"],
        };
        assert_eq!(verify(&db, Vec::new()).await, [otherwise]);
        db.run(&format!(
            "UPDATE agent_action SET status = 'completed', error_code = NULL WHERE id = '{}'",
            sent.id
        ))
        .await;
    }
    whole(&db).await;
    // R-15: a revoked grant no longer counts.
    db.run("UPDATE approval_grant SET revoked_at = NULL, revoked_by = NULL")
        .await;
    let grant_id = grant.to_string();
    assert_eq!(
        verify(&db, Vec::new()).await,
        [Finding::GrantUnrecorded { grant_id }],
        "it was revoked"
    );
    db.run("UPDATE approval_grant SET revoked_at = created_at, revoked_by = 'erin'")
        .await;
    whole(&db).await;
    // R-5, R-14: requests and resolutions must equal those in the audit log.
    let [first, second, third] = [actions[0].0, actions[1].0, third].map(|id| id.to_string());
    db.run("CREATE TABLE was AS SELECT * FROM agent_action").await;
    for (change, of, differs) in [
        ("resolved_by = 'mallory'", &first, vec!["approver"]),
        ("arguments = '{}', tool = 'x'", &first, vec!["tool", "arguments"]),
        ("details = '{\"reason\":\"x\"}'", &first, vec!["details shown"]),
        (
            "user_id = 'x', tenant = 'x', server = 'x', tool_digest = 'x'",
            &third,
            vec!["tenant", "user", "server", "definition"],
        ),
        (
            "status = 'approved', resolution = 'approve_once'",
            &second,
            vec!["resolution"],
        ),
        (
            "status = 'approved', resolution = 'approve_once', resolved_by = 'x', resolved_at = 1",
            &third,
            vec!["resolution", "approver"],
        ),
    ] {
        db.run(&format!("UPDATE agent_action SET {change} WHERE id = '{of}'"))
            .await;
        let action_id = of.clone();
        let found = Finding::ApprovalDiffers { action_id, differs };
        assert_eq!(verify(&db, Vec::new()).await, [found], "{change}");
        db.run("DELETE FROM agent_action; INSERT INTO agent_action SELECT * FROM was")
            .await;
    }
    whole(&db).await;
}

/// R-11, R-14: a resolution that was written directly into the database lets a call start, and the verification reports
/// it as unapproved.
pub(crate) async fn a_call_started_without_an_approval_is_found(db: TestDb) {
    let store = db.open().await;
    let run = new_run();
    let lease = begin(&store, &run).await;
    let (action, approval) = (ActionId::new(), ApprovalId::new());
    let suspend = suspend(lease, run.id, vec![asked(action, approval)]);
    assert_eq!(store.commit(suspend).await.unwrap(), Committed::Written);
    db.run(
        "UPDATE agent_action SET status = 'approved', resolution = 'approve_once', resolved_by = 'user:boss', \
         resolved_at = created_at; UPDATE agent_run SET status = 'running', lease_until = 0",
    )
    .await;
    let lease = store.take(run.id).await.unwrap().unwrap();
    let sent = OpenCall {
        id: action,
        tool: Some(tool("send")),
        created_at: T0,
        decision: run.decision.id,
        ..intent(&run.decision, 1)
    };
    let append = Append {
        intents: vec![sent.clone()],
        asked: vec![sent.id],
        ..entries(lease, 1..=1)
    };
    assert_eq!(store.append(append).await.unwrap(), Committed::Written);
    let action_id = action.to_string();
    let begun = rows(&db).await.into_iter().find(|row| row.kind == "effect_intended");
    assert_eq!(
        verify(&db, Vec::new()).await,
        [
            Finding::Unapproved {
                number: begun.unwrap().number,
                action_id: action_id.clone()
            },
            Finding::ApprovalDiffers {
                action_id,
                differs: vec!["resolution", "approver"]
            }
        ]
    );
}

/// R-11, R-15: a grant that was written directly into the database lets a call start, and the verification reports it.
/// This holds even if the grant is removed again, whatever its date.
pub(crate) async fn a_call_started_under_a_forged_grant_is_found(db: TestDb) {
    let store = db.open().await;
    let run = new_run();
    let lease = begin(&store, &run).await;
    let grant = GrantId::new();
    db.run(&format!(
        "INSERT INTO approval_grant (id, tenant, user_id, server, tool, recipients, tool_digest, action_id, created_by, created_at) \
         VALUES ('{grant}', 'default', 'ann', 'tasks', 'send', '{{\"to\":[\"bob@example.com\"]}}', 'd1gest', 'x', 'user:ann', 0)"
    ))
    .await;
    let grant_id = grant.to_string();
    assert_eq!(
        verify(&db, Vec::new()).await,
        [Finding::GrantUnrecorded {
            grant_id: grant_id.clone()
        }]
    );
    let sent = OpenCall {
        tool: Some(tool("send")),
        created_at: T0,
        ..intent(&run.decision, 1)
    };
    let action = NewAction {
        approval: None,
        grant: Some(grant),
        ..asked(sent.id, ApprovalId::new())
    };
    let append = Append {
        intents: vec![sent.clone()],
        actions: vec![action],
        ..entries(lease, 1..=1)
    };
    assert_eq!(store.append(append).await.unwrap(), Committed::Written);
    let without = Finding::Unapproved {
        number: 1,
        action_id: sent.id.to_string(),
    };
    assert_eq!(
        verify(&db, Vec::new()).await,
        [without.clone(), Finding::GrantUnrecorded { grant_id }]
    );
    db.run("DELETE FROM approval_grant").await;
    assert_eq!(verify(&db, Vec::new()).await, [without]);
}
