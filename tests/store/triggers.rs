//! the triggers that make the audit log append-only.

use gavel::adapters::store::{AuditFilter, AuditKind, AuditLog, AuditSecrets, Finding, TriggerState};

use crate::audit::effect;
use crate::support::TestDb;

/// Name and state of each trigger that `gavel audit verify` reports.
async fn found(db: &TestDb) -> Vec<(String, TriggerState)> {
    let mut log = AuditLog::open(&db.url, &AuditSecrets::default()).await.unwrap();
    let verified = log.verify(Vec::new(), |_, _| {}).await.unwrap();
    let reported = log.triggers().await.unwrap();
    log.close().await;
    let of = |finding: &Finding| match finding {
        Finding::Trigger(damage) => (damage.trigger.clone(), damage.state),
        other => panic!("{other}"),
    };
    let found: Vec<_> = verified.findings.iter().map(of).collect();
    let reported: Vec<_> = reported
        .into_iter()
        .map(|damage| (damage.trigger, damage.state))
        .collect();
    assert_eq!(found, reported, "gavel doctor reports the same");
    found
}

/// The audit entries of restored triggers, with the state of each.
async fn restored(db: &TestDb) -> Vec<(String, String)> {
    let mut log = AuditLog::open(&db.url, &AuditSecrets::default()).await.unwrap();
    let filter = AuditFilter {
        columns: vec![("kind", AuditKind::TriggerRestored.to_string())],
        ..AuditFilter::default()
    };
    let rows = log.page(0, &filter).await.unwrap();
    log.close().await;
    let of = |detail: &str| -> (String, String) {
        let detail: serde_json::Value = serde_json::from_str(detail).unwrap();
        let text = |name: &str| detail[name].as_str().unwrap().to_owned();
        (text("trigger"), text("was"))
    };
    assert!(rows.iter().all(|row| row.actor == "gavel"));
    rows.iter().map(|row| of(&row.detail)).collect()
}

/// One way to remove the protection, and the finding it causes.
struct Tampering {
    sql: String,
    found: Vec<(&'static str, TriggerState)>,
}

fn tamperings(is_sqlite: bool) -> Vec<Tampering> {
    use TriggerState::{Changed, Missing};
    let tampering = |sql: String, found: &[(&'static str, TriggerState)]| Tampering {
        sql,
        found: found.to_vec(),
    };
    let names: &[(&str, &str)] = match is_sqlite {
        true => &[
            ("audit_follows", "audit"),
            ("audit_moves_head", "audit"),
            ("audit_keeps", "audit"),
            ("audit_stays", "audit"),
            ("audit_head_advances", "audit_head"),
            ("audit_head_stays", "audit_head"),
            ("audit_head_is_one", "audit_head"),
        ],
        false => &[
            ("audit_follows", "audit"),
            ("audit_keeps", "audit"),
            ("audit_stays", "audit"),
            ("audit_head_advances", "audit_head"),
            ("audit_head_stays", "audit_head"),
            ("audit_head_remains", "audit_head"),
        ],
    };
    let mut all: Vec<_> = names
        .iter()
        .map(|&(name, table)| {
            let on = if is_sqlite {
                String::new()
            } else {
                format!(" ON {table}")
            };
            tampering(format!("DROP TRIGGER {name}{on}"), &[(name, Missing)])
        })
        .collect();
    let changed: &[(&str, &[&'static str])] = match is_sqlite {
        true => &[
            // A trigger that does nothing.
            (
                "DROP TRIGGER audit_keeps; CREATE TRIGGER audit_keeps BEFORE UPDATE ON audit BEGIN SELECT 1; END",
                &["audit_keeps"],
            ),
            // A trigger with the original action and a condition that is never true.
            (
                "DROP TRIGGER audit_stays; CREATE TRIGGER audit_stays BEFORE DELETE ON audit WHEN 0 BEGIN \
                 SELECT RAISE(ABORT, 'audit is append-only: no row is deleted'); END",
                &["audit_stays"],
            ),
        ],
        false => &[
            ("ALTER TABLE audit DISABLE TRIGGER audit_keeps", &["audit_keeps"]),
            ("ALTER TABLE audit ENABLE REPLICA TRIGGER audit_stays", &["audit_stays"]),
            (
                "DROP TRIGGER audit_keeps ON audit; CREATE TRIGGER audit_keeps BEFORE UPDATE OR DELETE ON audit \
                 FOR EACH ROW WHEN (false) EXECUTE FUNCTION audit_refuses()",
                &["audit_keeps"],
            ),
            (
                "DROP TRIGGER audit_keeps ON audit; CREATE TRIGGER audit_keeps BEFORE UPDATE OF tool OR DELETE ON audit \
                 FOR EACH ROW EXECUTE FUNCTION audit_refuses()",
                &["audit_keeps"],
            ),
            (
                "DROP TRIGGER audit_keeps ON audit; CREATE TRIGGER audit_keeps BEFORE DELETE ON audit \
                 FOR EACH ROW EXECUTE FUNCTION audit_refuses()",
                &["audit_keeps"],
            ),
            (
                "CREATE OR REPLACE FUNCTION audit_refuses() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$",
                &["audit_stays", "audit_head_stays", "audit_head_remains"],
            ),
            (
                "CREATE OR REPLACE FUNCTION audit_keeps() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$",
                &["audit_keeps"],
            ),
            (
                "ALTER TABLE audit DISABLE TRIGGER USER; ALTER TABLE audit_head DISABLE TRIGGER USER",
                &[
                    "audit_follows",
                    "audit_keeps",
                    "audit_stays",
                    "audit_head_advances",
                    "audit_head_stays",
                    "audit_head_remains",
                ],
            ),
        ],
    };
    for (sql, names) in changed {
        let found: Vec<_> = names.iter().map(|name| (*name, Changed)).collect();
        all.push(tampering((*sql).to_owned(), &found));
    }
    all
}

/// a missing, changed or disabled trigger is found by `verify` and `doctor`. A start restores it and enters that.
pub(crate) async fn a_missing_or_changed_trigger_is_found_and_the_next_start_restores_and_enters_it(db: TestDb) {
    db.open().await.shutdown().await;
    assert_eq!(found(&db).await, []);
    let mut entered = Vec::new();
    for Tampering { sql, found: expected } in tamperings(db.is_sqlite()) {
        db.run(&sql).await;
        let mine: Vec<_> = expected
            .iter()
            .map(|(name, state)| ((*name).to_owned(), *state))
            .collect();
        assert_eq!(found(&db).await, mine, "{sql}");

        let store = db.open().await;
        effect(&store).await;
        store.shutdown().await;
        assert_eq!(found(&db).await, [], "restored, and the chain is whole: {sql}");
        entered.extend(expected.iter().map(|(name, state)| {
            let was = if *state == TriggerState::Missing {
                "missing"
            } else {
                "changed"
            };
            ((*name).to_owned(), was.to_owned())
        }));
        assert_eq!(restored(&db).await, entered, "{sql}");
        for refused in [
            "UPDATE audit SET actor = 'mallory'",
            "DELETE FROM audit",
            "UPDATE audit_head SET number = number + 1",
            "DELETE FROM audit_head",
        ] {
            assert!(db.try_run(refused).await.is_err(), "{refused} after {sql}");
        }
    }
    db.open().await.shutdown().await;
    assert_eq!(restored(&db).await, entered, "if nothing is missing nothing is entered");
}

/// An operator's own trigger, for example for replication, is not a finding.
pub(crate) async fn an_operators_own_trigger_is_not_a_finding_and_stays(db: TestDb) {
    db.open().await.shutdown().await;
    db.run(match db.is_sqlite() {
        true => "CREATE TRIGGER mine AFTER INSERT ON audit BEGIN SELECT 1; END",
        false => {
            "CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$; \
             CREATE TRIGGER mine AFTER INSERT ON audit FOR EACH ROW EXECUTE FUNCTION mine()"
        }
    })
    .await;
    assert_eq!(found(&db).await, []);
    db.open().await.shutdown().await;
    let drop = if db.is_sqlite() {
        "DROP TRIGGER mine"
    } else {
        "DROP TRIGGER mine ON audit"
    };
    db.run(drop).await;
}
