//! The record of actions and the audit log of side effects, through the whole system and on both
//! databases.

use std::process::Output;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row, SqliteConnection};
use tokio::process::Command;

use crate::gemini::Reply;
use crate::harness::{Answer, App, Setup, binary, spawn_app, until};

const WORKSPACE: &str = "---\nname: workspace\ndescription: Works.\napproval: never\n\
                         tools: [add_task, complete_task, list_tasks]\n---\n\nYou are the workspace.\n";

fn both() -> [Setup; 2] {
    [Setup::stdio_sqlite(), Setup::stdio_postgres()].map(|setup| setup.agent("workspace.md", WORKSPACE))
}

/// Rows of gavel's database as text, nulls as `-`.
pub async fn rows(url: &str, sql: &str) -> Vec<Vec<String>> {
    macro_rules! cells {
        ($rows:expr) => {
            $rows
                .iter()
                .map(|row| {
                    let cell = |column| row.try_get_unchecked::<Option<String>, usize>(column).unwrap();
                    (0..row.len())
                        .map(|column| cell(column).unwrap_or("-".to_owned()))
                        .collect()
                })
                .collect()
        };
    }
    let sql = AssertSqlSafe(sql.to_owned());
    if url.starts_with("postgres") {
        let mut database = PgConnection::connect(url).await.unwrap();
        cells!(sqlx::raw_sql(sql).fetch_all(&mut database).await.unwrap())
    } else {
        let mut database = SqliteConnection::connect(url).await.unwrap();
        cells!(sqlx::raw_sql(sql).fetch_all(&mut database).await.unwrap())
    }
}

/// Runs `gavel audit …` with the real binary on a database.
async fn audit(url: &str, args: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let mut gavel = Command::new(binary());
    gavel.env_clear().current_dir(directory.path()).env("DATABASE_URL", url);
    gavel.arg("audit").args(args).output().await.unwrap()
}

fn reported(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Verifies the audit log of a database that may be in use.
pub async fn audit_is_whole(url: &str, when: &str) {
    let verified = audit(url, &["verify"]).await;
    assert_eq!(verified.status.code(), Some(0), "{when}: {}", reported(&verified));
}

impl App {
    async fn asks(&self, prompt: &str) -> Value {
        let asked = self.request("POST", "/api/agent/run", &[("x-gavel-user", "ann")]);
        Answer::of(asked.json(&json!({"prompt": prompt}))).await.expect(200)
    }

    async fn answers(&self, action: &Value, decision: &str) -> Value {
        let path = "/api/agent/approvals/resolve";
        let body = json!({"approvalId": action["approvalId"], "decision": decision, "reason": "because"});
        let asked = self.request("POST", path, &[("x-gavel-user", "ann")]);
        Answer::of(asked.json(&body)).await.expect(200)
    }
}

/// Makes two calls in one turn, and then ends.
fn two(first: (&'static str, Value), second: (&'static str, Value)) -> Reply {
    Reply::from(move |request| match request["contents"].as_array().unwrap().len() {
        1 => Reply::Calls(vec![(first.0, first.1.clone()), (second.0, second.1.clone())]),
        _ => Reply::Text("That is all."),
    })
}

/// the row of every action and the run's response have the model, the tool, the hash of its arguments, the policy
/// decision, the approval, the execution, the error, and the times of all these.
#[tokio::test]
async fn every_action_records_its_proposer_its_approval_and_its_outcome() {
    for setup in both() {
        let calls = two(
            ("add_task", json!({"description": "milk"})),
            ("complete_task", json!({"id": "stranger-has-it"})),
        );
        let app = spawn_app(setup.script(vec![calls])).await;
        let waiting = app.asks("Add milk and complete the other one.").await;
        assert_eq!(waiting["status"], "awaiting_confirmation", "{waiting}");
        for action in waiting["actions"].as_array().unwrap() {
            assert_eq!(action["record"]["policyDecision"], "require_approval", "{action}");
            assert_eq!(action["record"]["approvalId"], action["approvalId"], "{action}");
            for unset in ["resolvedAt", "resolvedBy", "startedAt", "completedAt"] {
                assert_eq!(action["record"][unset], Value::Null, "{action}");
            }
            app.answers(action, "approve_once").await;
        }
        let path = format!("/api/agent/runs/{}", waiting["runId"].as_str().unwrap());
        let done = Answer::of(app.request("GET", &path, &[("x-gavel-user", "ann")]))
            .await
            .expect(200);
        assert_eq!(done["status"], "completed", "{done}");
        let rows = rows(
            &app.database_url,
            "SELECT model, tool, input_hash, policy, approval_id, status, error_code, error_message, arguments, \
             CASE WHEN created_at <= resolved_at AND resolved_at <= started_at AND started_at <= completed_at \
             THEN 'in order' END FROM agent_action ORDER BY sequence",
        )
        .await;
        let actions = done["actions"].as_array().unwrap();
        assert_eq!((rows.len(), actions.len()), (2, 2), "{rows:?} {done}");
        for (row, (asked, reported)) in rows
            .iter()
            .zip(waiting["actions"].as_array().unwrap().iter().zip(actions))
        {
            let hash = hex::encode(Sha256::digest(asked["arguments"].to_string()));
            let record = &reported["record"];
            assert_eq!(row[0], "gemini-3.5-flash", "{row:?}");
            assert_eq!(row[1], reported["tool"], "{row:?}");
            assert_eq!(row[2], hash, "{row:?}");
            assert_eq!(row[3], "require_approval", "{row:?}");
            assert_eq!(row[4], asked["approvalId"], "{row:?}");
            assert_eq!(row[5], reported["status"], "{row:?}");
            assert_eq!(row[9], "in order", "{row:?}");
            assert_eq!(
                (
                    &record["modelName"],
                    &record["inputHash"],
                    &record["policyDecision"],
                    &record["approvalId"]
                ),
                (&json!(row[0]), &json!(hash), &json!(row[3]), &asked["approvalId"]),
                "{reported}"
            );
            assert_eq!(record["resolvedBy"], "service:local for user:ann", "{reported}");
            for set in ["createdAt", "resolvedAt", "startedAt", "completedAt"] {
                assert!(
                    record[set].as_str().is_some_and(|at| at.ends_with('Z')),
                    "{set}: {reported}"
                );
            }
        }
        assert_eq!((&*rows[0][5], &*rows[0][6], &*rows[0][7]), ("completed", "-", "-"));
        assert_eq!((&*rows[1][5], &*rows[1][6]), ("failed", "tool_error"), "{rows:?}");
        assert!(rows[1][7].len() > 1, "{rows:?}");
        assert_eq!(actions[1]["errorCode"], "tool_error", "{done}");
        let said = actions[1]["errorMessage"].as_str().unwrap();
        assert!(
            !said.starts_with('{') && rows[1][7].contains(said),
            "as text: {said} of {rows:?}"
        );
    }
}

/// for an approved and a rejected action, a cancelled run and a chat, the audit log has every effect with its
/// actor. It verifies while gavel runs, from an export, and against a kept head.
#[tokio::test]
async fn every_effect_is_in_the_audit_log_and_tampering_is_detected() {
    for setup in both() {
        let calls = two(
            ("add_task", json!({"description": "milk"})),
            ("add_task", json!({"description": "eggs"})),
        );
        let app = spawn_app(setup.script(vec![calls])).await;
        let waiting = app.asks("Add milk and eggs.").await;
        let actions = waiting["actions"].as_array().unwrap().clone();
        app.answers(&actions[0], "approve_once").await;
        app.answers(&actions[1], "reject").await;
        until("the first to be done", || async { app.tasks().await.len() == 1 }).await;
        let other = app.asks("Add them again.").await;
        let path = format!("/api/agent/runs/{}/cancel", other["runId"].as_str().unwrap());
        let cancelled = app.request("POST", &path, &[("x-gavel-user", "ann")]);
        Answer::of(cancelled).await.expect(200);

        let url = &app.database_url;
        let list = "SELECT kind, actor, tool FROM audit WHERE action_id = '{}' ORDER BY number";
        let of = async |action: &Value| -> Vec<String> {
            let rows = rows(url, &list.replace("{}", action["actionId"].as_str().unwrap())).await;
            rows.iter().map(|row| row.join(" ")).collect()
        };
        assert_eq!(
            of(&actions[0]).await,
            [
                "approval_requested ann add_task",
                "approval_resolved service:local for user:ann add_task",
                "effect_intended ann add_task",
                "effect_completed ann add_task"
            ]
        );
        assert_eq!(
            of(&actions[1]).await,
            [
                "approval_requested ann add_task",
                "approval_resolved service:local for user:ann add_task"
            ]
        );
        let cancelled = format!(
            "SELECT actor FROM audit WHERE kind = 'run_cancelled' AND subject = '{}'",
            other["runId"].as_str().unwrap()
        );
        assert_eq!(rows(url, &cancelled).await, [["service:local for user:ann"]]);

        audit_is_whole(url, "while it runs").await;
        let head = audit(url, &["head"]).await;
        let head = String::from_utf8(head.stdout).unwrap().trim().to_owned();
        let kept = app.directory.path().join("heads");
        std::fs::write(&kept, format!("{head}\n")).unwrap();
        let kept = kept.display().to_string();
        let listed = audit(url, &["list", "--kind", "effect_completed", "--actor", "ann", "--json"]).await;
        let listed = String::from_utf8(listed.stdout).unwrap();
        let row: Value = serde_json::from_str(listed.trim()).unwrap();
        assert_eq!(row["action_id"], actions[0]["actionId"]);
        let export = app.directory.path().join("audit.ndjson").display().to_string();
        let exported = audit(url, &["export", "--out", &export]).await;
        assert_eq!(exported.status.code(), Some(0), "{}", reported(&exported));
        let again = audit(url, &["export", "--out", &export]).await;
        assert_eq!(
            again.status.code(),
            Some(2),
            "an existing export is not overwritten: {}",
            reported(&again)
        );
        // With the key of the database, and in parts that join.
        let verified = audit(url, &["verify", "--export", &export]).await;
        assert_eq!(verified.status.code(), Some(0), "{}", reported(&verified));
        let first: Value =
            serde_json::from_str(std::fs::read_to_string(&export).unwrap().lines().next().unwrap()).unwrap();
        let joint = format!("1:{}", first["hash"].as_str().unwrap());
        let part = app.directory.path().join("part.ndjson").display().to_string();
        let exported = audit(url, &["export", "--since", "1", "--out", &part]).await;
        assert_eq!(exported.status.code(), Some(0), "{}", reported(&exported));
        let verified = audit(url, &["verify", "--export", &part, "--head", &joint]).await;
        assert_eq!(verified.status.code(), Some(0), "{}", reported(&verified));
        assert!(reported(&verified).contains("after row 1,"), "{}", reported(&verified));
        let alone = audit(url, &["verify", "--export", &part]).await;
        assert_eq!(
            alone.status.code(),
            Some(1),
            "the part before it is unknown: {}",
            reported(&alone)
        );
        // An attacker who cuts rows off at the start of a part makes it begin later.
        let lines = std::fs::read_to_string(&part).unwrap();
        let second: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
        let mut last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
        last["after"] = json!({"number": 2, "hash": second["hash"]});
        let count = lines.lines().count();
        let mut cut: Vec<_> = lines.lines().skip(1).take(count - 2).map(str::to_owned).collect();
        cut.push(last.to_string());
        let shorter = app.directory.path().join("cut.ndjson").display().to_string();
        std::fs::write(&shorter, cut.join("\n")).unwrap();
        let verified = audit(url, &["verify", "--export", &shorter, "--head", &joint]).await;
        assert_eq!(verified.status.code(), Some(9), "{}", reported(&verified));
        assert!(
            reported(&verified).contains("missing: row 2"),
            "{}",
            reported(&verified)
        );
        let other = format!("1:{}", "0".repeat(64));
        let verified = audit(url, &["verify", "--export", &part, "--head", &other]).await;
        assert_eq!(verified.status.code(), Some(9), "{}", reported(&verified));
        let nowhere = app.directory.path().join("none.ndjson");
        let none = audit(
            url,
            &["export", "--since", "99", "--out", &nowhere.display().to_string()],
        )
        .await;
        assert_eq!(none.status.code(), Some(2), "{}", reported(&none));
        assert!(!nowhere.exists());

        // An attacker with access to the database.
        let number: i64 = head.split_once(':').unwrap().0.parse().unwrap();
        let guard = match url.starts_with("postgres") {
            true => "ALTER TABLE audit DISABLE TRIGGER ALL",
            false => "DROP TRIGGER audit_keeps",
        };
        rows(url, guard).await;
        rows(url, "UPDATE audit SET actor = 'mallory' WHERE number = 2").await;
        let broken = audit(url, &["verify", "--head", &head]).await;
        assert_eq!(broken.status.code(), Some(9), "{}", reported(&broken));
        assert!(
            reported(&broken).contains("✗ changed: row 2 is not what was written"),
            "{}",
            reported(&broken)
        );
        let broken = audit(url, &["verify", "--json"]).await;
        let report: Value = serde_json::from_slice(&broken.stdout).unwrap();
        assert_eq!((&report["whole"], &report["rows"]), (&json!(false), &json!(number)));
        let findings = report["findings"].as_array().unwrap();
        assert_eq!(findings[0], json!({"finding": "changed", "number": 2}));
        let keeps = |found: &Value| found["finding"] == "trigger" && found["trigger"] == "audit_keeps";
        assert!(findings.iter().any(keeps), "{report}");
        rows(url, "UPDATE audit SET key_id = 'another' WHERE number = 2").await;
        let foreign = audit(url, &["verify"]).await;
        assert_eq!(
            foreign.status.code(),
            Some(9),
            "no key was lost there: {}",
            reported(&foreign)
        );
        assert!(
            reported(&foreign).contains("row 2 with the key another"),
            "{}",
            reported(&foreign)
        );
        let longer = format!("{}:{}", number + 2, head.split_once(':').unwrap().1);
        let broken = audit(url, &["verify", "--head-file", &kept, "--head", &longer]).await;
        assert!(
            reported(&broken).contains(&format!("cut off at the end: rows {} to {}", number + 1, number + 2)),
            "{}",
            reported(&broken)
        );
    }
}

/// thousands of kept heads, many of the same row, all match their rows. A single mismatch is named, wherever it
/// is in the list.
#[tokio::test]
async fn among_thousands_of_kept_heads_the_mismatch_is_named() {
    for setup in both() {
        let app = spawn_app(setup).await;
        let path = "/api/projects/shop/agents/seller";
        for version in 1..=600 {
            let words = format!("---\nname: seller\ndescription: Sells.\n---\n\nSell {version}.\n");
            let put = app.request("PUT", path, &[("content-type", "text/markdown")]);
            let put = Answer::of(put.body(words)).await;
            assert!(put.status < 300, "{version}: {}", put.body);
        }
        let url = &app.database_url;
        let hashes = rows(url, "SELECT hash FROM audit ORDER BY number").await.concat();
        let all = hashes.len();
        assert!(all >= 600, "{all}");
        let head = |number: usize| format!("{number}:{}", hashes[number - 1]);
        // Heads are printed on a schedule, whether or not rows were entered since: eight for each row.
        let right: Vec<_> = (1..=all).flat_map(|number| vec![head(number); 8]).collect();
        let file = app.directory.path().join("heads").display().to_string();
        let verified = async |heads: &[String], more: &[&str]| {
            std::fs::write(&file, heads.join("\n")).unwrap();
            audit(url, &[&["verify", "--head-file", &file], more].concat()).await
        };
        let whole = verified(&right, &[]).await;
        assert_eq!(whole.status.code(), Some(0), "{}", reported(&whole));
        assert!(
            reported(&whole).contains(&format!("{all} rows, head {}", head(all))),
            "{}",
            reported(&whole)
        );

        // The first and the last of a row's heads are replaced, and heads of the first and the last row.
        for at in [0, 8 * 250, 8 * 250 + 3, 8 * 501 - 1, right.len() - 1] {
            let (number, other) = (at / 8 + 1, "0".repeat(64));
            let mut heads = right.clone();
            heads[at] = format!("{number}:{other}");
            let invalid = verified(&heads, &["--json"]).await;
            assert_eq!(invalid.status.code(), Some(9), "{}", reported(&invalid));
            let report: Value = serde_json::from_slice(&invalid.stdout).unwrap();
            let named = json!([{
                "finding": "rewritten", "kept": {"number": number, "hash": other}, "hash": hashes[number - 1],
            }]);
            assert_eq!(
                (&report["findings"], &report["rows"]),
                (&named, &json!(all)),
                "{at}: {report}"
            );
        }
        let mut heads = right;
        heads[8 * 250] = format!("251:{}", "0".repeat(64));
        let invalid = verified(&heads, &[]).await;
        let words = format!("rewritten: row 251 had the hash {}", "0".repeat(64));
        assert!(reported(&invalid).contains(&words), "{}", reported(&invalid));
    }
}

/// An export is verified with the given key, wherever the database is.
#[tokio::test]
async fn an_export_can_be_verified_with_the_key_only() {
    const KEY: &str = "0123456789abcdef0123456789abcdef";
    let call = Reply::from(|request| match request["contents"].as_array().unwrap().len() {
        1 => Reply::call("add_task", json!({"description": "milk"})),
        _ => Reply::Text("Added."),
    });
    let app = spawn_app(Setup::stdio_sqlite().env("GAVEL_AUDIT_KEY", KEY).script(vec![call])).await;
    app.chat("Add milk.").await;
    assert!(!app.directory.path().join("gavel.db.audit-key").exists());
    let export = app.directory.path().join("audit.ndjson");
    let path = export.display().to_string();
    let verify = async |key: &str| {
        let mut gavel = Command::new(binary());
        gavel
            .env_clear()
            .current_dir(app.directory.path())
            .env("GAVEL_TRUST", app.directory.path())
            .env("DATABASE_URL", "sqlite:none.db");
        gavel
            .env("GAVEL_AUDIT_KEY", key)
            .args(["audit", "verify", "--export", &path]);
        gavel.output().await.unwrap()
    };
    let exported = audit(&app.database_url, &["export", "--out", &path]).await;
    assert_eq!(exported.status.code(), Some(0), "{}", reported(&exported));
    let verified = verify(KEY).await;
    assert_eq!(verified.status.code(), Some(0), "{}", reported(&verified));
    assert!(reported(&verified).contains("2 rows"), "{}", reported(&verified));
    let other = verify("another key, as long as the first one is").await;
    assert_eq!(other.status.code(), Some(1), "{}", reported(&other));
    let words = reported(&other);
    assert!(
        words.contains("cannot be verified: rows 1 to 2 with the key"),
        "{words}"
    );
    assert!(words.contains("audit.old_keys"), "{words}");
    assert!(
        words.contains("none.db"),
        "other places where a key was sought: {words}"
    );
    let lines = std::fs::read_to_string(&export).unwrap();
    std::fs::write(&export, lines.replace("ann", "bob")).unwrap();
    let changed = verify(KEY).await;
    // Its head is in the same file.
    let words = reported(&changed);
    assert!(words.contains("changed, or added outside: the last row, 2"), "{words}");
    std::fs::write(&export, lines.lines().skip(1).collect::<Vec<_>>().join("\n")).unwrap();
    assert!(reported(&verify(KEY).await).contains("missing: row 1"));
    // Joined from two exports.
    let rows: Vec<_> = lines.lines().collect();
    std::fs::write(&export, [&rows[..2], &rows].concat().join("\n")).unwrap();
    let twice = verify(KEY).await;
    assert_eq!(twice.status.code(), Some(9), "{}", reported(&twice));
    let words = reported(&twice);
    assert!(words.contains("out of order: row 1 follows row 2"), "{words}");
    assert!(!words.contains("missing"), "{words}");
}

/// Only the owner can read the key that gavel creates beside a SQLite database.
#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_can_read_the_key_beside_the_database() {
    use std::os::unix::fs::PermissionsExt;

    let app = spawn_app(Setup::stdio_sqlite()).await;
    let file = app.directory.path().join("gavel.db.audit-key");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_to_string(&file).unwrap().len(), 64);
}

/// with an emptied or truncated key file anyone could forge the chain, so gavel refuses to start and says what to
/// do.
#[tokio::test]
async fn a_key_beside_the_database_that_is_too_short_stops_the_start() {
    let mut app = spawn_app(Setup::stdio_sqlite()).await;
    app.begin_stop().await.unwrap();
    let file = app.directory.path().join("gavel.db.audit-key");
    for short in ["", "\n", "0123456789abcdef0123456789abcde\n"] {
        std::fs::write(&file, short).unwrap();
        let mut gavel = Command::new(binary());
        gavel
            .env_clear()
            .current_dir(app.directory.path())
            .env("GAVEL_TRUST", app.directory.path())
            .env("DATABASE_URL", &app.database_url);
        let begun = gavel.args(["chat", "Hello."]).output().await.unwrap();
        assert!(!begun.status.success());
        let words = reported(&begun);
        assert!(
            words.contains("gavel.db.audit-key") && words.contains("restore it from a backup"),
            "{words}"
        );
        let verified = audit(&app.database_url, &["verify"]).await;
        assert!(
            reported(&verified).contains("restore it from a backup"),
            "{}",
            reported(&verified)
        );
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            short,
            "the file is not overwritten"
        );
    }
}

/// docs/reference/audit.md, The key: if a key is given, a file beside the database is an older one. If it is emptied or
/// truncated, it stops neither gavel nor the verification, and nothing is hashed with it.
#[tokio::test]
async fn a_given_key_takes_precedence_over_a_file_beside_the_database() {
    const KEY: &str = "0123456789abcdef0123456789abcdef";
    let call = Reply::from(|request| match request["contents"].as_array().unwrap().len() {
        1 => Reply::call("add_task", json!({"description": "milk"})),
        _ => Reply::Text("Added."),
    });
    let mut app = spawn_app(
        Setup::stdio_sqlite()
            .env("GAVEL_AUDIT_KEY", KEY)
            .script(vec![call.clone()]),
    )
    .await;
    app.chat("Add milk.").await;
    app.begin_stop().await.unwrap();
    let file = app.directory.path().join("gavel.db.audit-key");
    let export = app.directory.path().join("audit.ndjson").display().to_string();
    let gavel = async |key: Option<(&str, &str)>, args: &[&str]| {
        let mut gavel = Command::new(binary());
        gavel
            .env_clear()
            .current_dir(app.directory.path())
            .env("GAVEL_TRUST", app.directory.path())
            .env("DATABASE_URL", &app.database_url)
            .envs(key);
        gavel.arg("audit").args(args).output().await.unwrap()
    };
    let given = Some(("GAVEL_AUDIT_KEY", KEY));
    let mut rows = 2;
    for short in ["", "\n", "0123456789abcdef0123456789abcde\n"] {
        std::fs::write(&file, short).unwrap();
        // Gavel starts and works.
        let setup = Setup::stdio_sqlite()
            .env("DATABASE_URL", &app.database_url)
            .env("GAVEL_AUDIT_KEY", KEY);
        let mut again = spawn_app(setup.script(vec![call.clone()])).await;
        again.chat("Add milk.").await;
        again.begin_stop().await.unwrap();
        rows += 2;

        let verified = gavel(given, &["verify"]).await;
        let words = reported(&verified);
        assert_eq!(verified.status.code(), Some(0), "{short:?}: {words}");
        assert!(words.contains(&format!("{rows} rows")), "{words}");
        assert!(
            words.contains("gavel.db.audit-key") && words.contains("is ignored, since audit.key is set"),
            "an invalid key file is reported: {words}"
        );
        let _ = std::fs::remove_file(&export);
        for args in [
            &["head"][..],
            &["export", "--out", &export],
            &["verify", "--export", &export],
        ] {
            let read = gavel(given, args).await;
            assert_eq!(read.status.code(), Some(0), "{short:?} {args:?}: {}", reported(&read));
        }
        // An old key does not apply to new rows, so the file would be the key: it is refused.
        for key in [None, Some(("GAVEL_AUDIT_OLD_KEYS", KEY))] {
            let refused = gavel(key, &["verify"]).await;
            assert_eq!(
                refused.status.code(),
                Some(1),
                "{short:?} {key:?}: {}",
                reported(&refused)
            );
            assert!(
                reported(&refused).contains("restore it from a backup"),
                "{}",
                reported(&refused)
            );
        }
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            short,
            "the file is not overwritten"
        );
    }
}

/// An export holds users' texts, as the database does: only its owner can read it, whatever the umask is.
#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_can_read_an_export() {
    use std::os::unix::fs::PermissionsExt;

    let app = spawn_app(Setup::stdio_sqlite()).await;
    let file = app.directory.path().join("audit.ndjson");
    let mut gavel = Command::new("sh");
    gavel
        .args(["-c", "umask 0 && exec \"$0\" audit export --out \"$1\"", binary()])
        .arg(&file)
        .env("DATABASE_URL", &app.database_url);
    let exported = gavel
        .current_dir(app.directory.path())
        .env("GAVEL_TRUST", app.directory.path())
        .output()
        .await
        .unwrap();
    assert_eq!(exported.status.code(), Some(0), "{}", reported(&exported));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

/// A lost key beside the database is reported by the log at the next start, by the doctor, and by the verification.
#[tokio::test]
async fn a_lost_key_is_reported() {
    let call = Reply::from(|request| match request["contents"].as_array().unwrap().len() {
        1 => Reply::call("add_task", json!({"description": "milk"})),
        _ => Reply::Text("Added."),
    });
    let mut app = spawn_app(Setup::stdio_sqlite().script(vec![call])).await;
    app.chat("Add milk.").await;
    let file = app.directory.path().join("gavel.db.audit-key");
    let kept = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    app.begin_stop().await.unwrap();
    let gavel = async |old: &[&str], args: &[&str]| {
        let mut gavel = Command::new(binary());
        gavel
            .env_clear()
            .current_dir(app.directory.path())
            .env("GAVEL_TRUST", app.directory.path())
            .env("DATABASE_URL", &app.database_url)
            .envs(old.iter().map(|key| ("GAVEL_AUDIT_OLD_KEYS", key)));
        reported(&gavel.args(args).output().await.unwrap())
    };
    let begun = gavel(&[], &["chat", "Add bread."]).await;
    assert!(
        begun.contains("the key of the existing rows is not in ") && begun.contains("gavel.db.audit-key"),
        "{begun}"
    );
    assert_ne!(std::fs::read_to_string(&file).unwrap(), kept);
    let again = gavel(&[], &["chat", "Add butter."]).await;
    assert!(
        !again.contains("the key of the existing rows is not in"),
        "the last rows have the new key: {again}"
    );
    let doctor = gavel(&[], &["doctor"]).await;
    assert!(
        doctor.contains("is missing; 2 rows hashed with it cannot be verified"),
        "{doctor}"
    );
    assert!(!gavel(&[&kept], &["doctor"]).await.contains("hashed with it"));
    let verified = audit(&app.database_url, &["verify"]).await;
    assert_eq!(verified.status.code(), Some(1), "{}", reported(&verified));
}
