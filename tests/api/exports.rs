//! Exports through the whole system, on both databases: each format has the rows that the lists have, and nothing that
//! its caller may not see.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};

use crate::audit::{audit_is_whole, rows};
use crate::gemini::Reply;
use crate::harness::{Answer, App, spawn_app};
use crate::others::{SECRET, token};
use crate::threads::{both, said};

/// A row: its values as text, without those that are null.
type Row = BTreeMap<String, String>;

const EVIL: &str = "=HYPERLINK(\"http://evil\"), \"a\",\u{202e}b\nc";

fn of_csv(bytes: &[u8]) -> Vec<Row> {
    let mut reader = csv::Reader::from_reader(bytes);
    let names: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
    let records = reader.records().map(|record| {
        let record = record.unwrap();
        let values = names.iter().cloned().zip(record.iter().map(str::to_owned));
        values.filter(|(_, value)| !value.is_empty()).collect()
    });
    records.collect()
}

/// Checks the digest in the last line.
fn of_ndjson(bytes: &[u8]) -> Vec<Row> {
    let text = std::str::from_utf8(bytes).unwrap();
    let (before, last) = text
        .trim_end()
        .rsplit_once('\n')
        .map_or(("", text), |(before, last)| (before, last));
    let last: Value = serde_json::from_str(last).unwrap();
    let before = if before.is_empty() {
        String::new()
    } else {
        format!("{before}\n")
    };
    assert_eq!(
        last["_manifest"]["sha256"],
        hex::encode(Sha256::digest(&before)),
        "{last}"
    );
    assert_eq!(last["_manifest"]["rows"], before.lines().count(), "{last}");
    let row = |line: &str| {
        let row: BTreeMap<String, Value> = serde_json::from_str(line).unwrap();
        let values = row.into_iter().filter_map(|(name, value)| match value {
            Value::Null => None,
            Value::String(text) => Some((name, text)).filter(|(_, text)| !text.is_empty()),
            other => Some((name, other.to_string())),
        });
        values.collect()
    };
    before.lines().map(row).collect()
}

fn of_parquet(bytes: &[u8]) -> Vec<Row> {
    let reader = SerializedFileReader::new(Bytes::copy_from_slice(bytes)).unwrap();
    let row = |row: parquet::record::Row| {
        let values = row.into_columns().into_iter().filter_map(|(name, field)| {
            let text = match field {
                Field::Null => return None,
                Field::Str(text) => text,
                Field::Long(int) => int.to_string(),
                Field::Bool(yes) => yes.to_string(),
                Field::TimestampMicros(us) => gavel::domain::time::Timestamp(us).to_string(),
                other => panic!("{name}: {other:?}"),
            };
            Some((name, text)).filter(|(_, text)| !text.is_empty())
        });
        values.collect()
    };
    reader
        .get_row_iter(None)
        .unwrap()
        .map(|one| row(one.unwrap()))
        .collect()
}

impl App {
    async fn exported(&self, path: &str, headers: &[(&str, &str)]) -> (String, Bytes) {
        let response = self.request("GET", path, headers).send().await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = response.bytes().await.unwrap();
        assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&bytes));
        (headers["x-gavel-export"].to_str().unwrap().to_owned(), bytes)
    }

    /// The rows of an export, which are those of each format.
    async fn export(&self, source: &str, query: &str, headers: &[(&str, &str)]) -> Vec<Row> {
        let mut all = Vec::new();
        for (format, read) in [
            ("csv&raw=1", of_csv as fn(&[u8]) -> Vec<Row>),
            ("ndjson", of_ndjson),
            ("parquet", of_parquet),
        ] {
            let path = format!("/v1/export/{source}?format={format}{query}");
            let (id, bytes) = self.exported(&path, headers).await;
            let rows = read(&bytes);
            let manifest = Answer::of(self.request("GET", &format!("/v1/exports/{id}"), headers))
                .await
                .expect(200);
            assert_eq!(manifest["sha256"], hex::encode(Sha256::digest(&bytes)), "{manifest}");
            assert_eq!(
                (&manifest["rows"], &manifest["complete"]),
                (&json!(rows.len()), &json!(true)),
                "{manifest}"
            );
            all.push(rows);
        }
        // The audit log has grown by the exports before.
        let is_kept = |row: &Row| row.get("kind").is_none_or(|kind| kind != "exported");
        all.iter_mut().for_each(|rows| rows.retain(is_kept));
        assert_eq!(all[0], all[1], "{source}: CSV and NDJSON");
        assert_eq!(all[1], all[2], "{source}: NDJSON and Parquet");
        all.swap_remove(2)
    }
}

/// Rows of a list, oldest first.
async fn listed(app: &App, list: &str) -> Vec<Value> {
    let (_, page) = app.get(&format!("/v1/{list}?order_by=created_at&page_size=1000")).await;
    page.as_object()
        .unwrap()
        .values()
        .find_map(Value::as_array)
        .unwrap()
        .clone()
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        other => Some(other.to_string()),
    }
}

#[tokio::test]
async fn each_format_has_the_rows_of_the_lists() {
    for setup in both() {
        let model = Reply::from(
            |request| match (said(request), request.to_string().contains("HYPERLINK")) {
                (1, true) => Reply::call("add_task", json!({"description": EVIL})),
                (_, true) => Reply::Text("-1, done"),
                (1, false) => Reply::call("list_tasks", json!({})),
                (_, false) => Reply::Text("None."),
            },
        );
        let app = spawn_app(setup.script(vec![model])).await;
        app.chat(EVIL).await;
        app.chat_as("bob", "what is open?").await;
        let waiting = app.say("HYPERLINK please").await;
        app.resolve(&waiting["actions"][0]["approvalId"], "approve_once").await;

        let decisions = app.export("decisions", "&content=true", &[]).await;
        let of_list = listed(&app, "decisions").await;
        assert_eq!(decisions.len(), 3, "{decisions:#?}");
        for (row, record) in decisions.iter().zip(&of_list) {
            let usage = &record["usage"];
            for (name, value) in record.as_object().unwrap().iter().chain(usage.as_object().unwrap()) {
                if !["usage", "turns"].contains(&name.as_str()) {
                    // A list that is not kept is an empty one in answers.
                    let exported = row.get(name).filter(|text| *text != "[]");
                    let listed = text(value).filter(|text| text != "[]");
                    assert_eq!(exported, listed.as_ref(), "{name}");
                }
            }
        }
        let calls = app.export("tool-invocations", "&content=1", &[]).await;
        let of_list = listed(&app, "tool-invocations").await;
        assert_eq!((calls.len(), of_list.len()), (3, 3), "{calls:#?}");
        for (row, record) in calls.iter().zip(&of_list) {
            for name in [
                "tool_invocation_id",
                "decision_id",
                "tool",
                "server",
                "side_effect",
                "created_at",
                "parameters",
            ] {
                assert_eq!(row.get(name), text(&record[name]).as_ref(), "{name}");
            }
            assert_eq!(row["success"], record["result"]["success"].to_string());
        }
        let turns = app.export("model-turns", "", &[]).await;
        let of_list = listed(&app, "decisions").await;
        let of_list: Vec<_> = of_list
            .iter()
            .flat_map(|record| {
                record["turns"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .zip(1..)
                    .map(move |turn| (record, turn))
            })
            .collect();
        assert_eq!(turns.len(), of_list.len());
        for (row, (record, (turn, number))) in turns.iter().zip(of_list) {
            assert_eq!(
                (&row["decision_id"], &row["number"]),
                (&text(&record["decision_id"]).unwrap(), &number.to_string())
            );
            for name in ["requested_model", "model", "started_at", "duration_ms", "attempts"] {
                assert_eq!(row.get(name), text(&turn[name]).as_ref(), "{name}");
            }
            assert_eq!(row["input_tokens"], turn["usage"]["input_tokens"].to_string());
        }
        let actions = app.export("actions", "", &[]).await;
        assert_eq!(actions.len(), 1, "{actions:#?}");
        assert_eq!(
            (&actions[0]["tool_name"], &actions[0]["execution_status"]),
            (&"add_task".into(), &"completed".into())
        );

        let of_kind = "&content=true&filter=kind%20!=%20%22exported%22";
        let audit = app.export("audit", of_kind, &[]).await;
        let stored = rows(
            &app.database_url,
            "SELECT hash FROM audit WHERE kind <> 'exported' ORDER BY number",
        )
        .await;
        assert!(
            audit.iter().map(|row| vec![row["hash"].clone()]).eq(stored),
            "{audit:#?}"
        );
        let entered = rows(
            &app.database_url,
            "SELECT actor, detail FROM audit WHERE kind = 'exported'",
        )
        .await;
        assert_eq!(entered.len(), 15);
        assert!(
            entered[0][0] == "service:local" && entered[0][1].contains("\"rows\":3"),
            "{entered:?}"
        );
        audit_is_whole(&app.database_url, "after exports").await;

        // Filter, columns and times are those that were asked for.
        let one = app
            .export(
                "decisions",
                "&fields=user_id,%20decision_id&filter=user_id%20=%20%22bob%22",
                &[],
            )
            .await;
        assert!(
            one.len() == 1 && one[0].len() == 2 && one[0]["user_id"] == "bob",
            "{one:?}"
        );
        let middle = &decisions[1]["created_at"];
        let from = app.export("decisions", &format!("&from={middle}"), &[]).await;
        let to = app.export("decisions", &format!("&to={middle}"), &[]).await;
        assert_eq!((from.len(), to.len()), (2, 1));
        assert!(
            !from[0].contains_key("message"),
            "no text unless it is asked for: {from:?}"
        );
        let turns = app
            .export(
                "model-turns",
                "&filter=call.tool%20=%20%22list_tasks%22&fields=attempts",
                &[],
            )
            .await;
        assert_eq!(turns.len(), 2, "the filter is that of the decisions: {turns:?}");
        let (_, formulas) = app.exported("/v1/export/decisions?fields=message,response", &[]).await;
        let formulas = of_csv(&formulas);
        assert!(formulas[0]["message"].starts_with("'=HYPERLINK"), "{formulas:?}");
        assert_eq!(formulas[0]["response"], "'-1, done");

        for (path, pointer, words) in [
            ("decisions?fields=message,nothing,%20", "fields", "nothing"),
            ("decisions?fields=status,status", "fields", "twice"),
            ("decisions?filter=nothing%20=%201", "filter", "character 1"),
            ("audit?filter=nothing%20=%201", "filter", "action_id"),
            ("actions?fields=message", "fields", "approval_id"),
        ] {
            let (status, problem) = app.get(&format!("/v1/export/{path}")).await;
            assert_eq!(
                (status, &problem["errors"][0]["pointer"]),
                (400, &json!(pointer)),
                "{problem}"
            );
            assert!(problem.to_string().contains(words), "{words}: {problem}");
        }
        app.stop().await;
    }
}

#[tokio::test]
async fn with_hashes_no_export_answer_or_page_has_a_text() {
    const CANARY: &str = "canary";
    for setup in both() {
        let model = Reply::from(|request| match said(request) {
            1 => Reply::call("add_task", json!({"description": "canary-of-arguments"})),
            _ => Reply::Text("canary-of-the-reply"),
        });
        let setup = setup.script(vec![model]).toml("[records]\ncontent = \"hash\"\n");
        let setup = setup.env("GAVEL_RECORDS_KEY", "a key of at least thirty-two characters, and more");
        let app = spawn_app(setup).await;
        app.chat("canary-of-the-message").await;
        app.say("canary-of-the-thread").await;
        for source in ["decisions", "tool-invocations", "model-turns", "actions", "audit"] {
            let mut query = "&content=true".to_owned();
            if source == "decisions" {
                query += "&filter=message%20:%20%22canary%22%20OR%20status%20!=%20null";
            }
            let rows = app.export(source, &query, &[]).await;
            assert!(!rows.is_empty(), "{source}");
            assert!(!format!("{rows:?}").contains(CANARY), "{source}: {rows:#?}");
        }
        let stored = rows(&app.database_url, "SELECT detail, texts FROM audit").await;
        assert!(
            !format!("{stored:?}").contains(CANARY),
            "nor the audit log, of a filter: {stored:?}"
        );
        let decisions = rows(&app.database_url, "SELECT id FROM decision_log").await;
        let of_each = [
            "v1/decisions/ID",
            "v1/decisions/ID/why",
            "v1/decisions/ID/request",
            "console/decisions/ID",
        ];
        let each = decisions
            .iter()
            .flat_map(|id| of_each.map(|path| path.replace("ID", &id[0])));
        let all = [
            "v1/decisions",
            "v1/tool-invocations",
            "v1/stats/tools",
            "console/overview",
            "console/decisions",
            "console/tools",
            "console/models",
            "console/cost",
            "metrics",
        ];
        for path in each.chain(all.map(str::to_owned)) {
            let (status, answer) = app.get(&format!("/{path}")).await;
            // No model was asked for what waits.
            assert!(status == 200 || path.ends_with("/request"), "{path}: {answer}");
            assert!(!answer.to_string().contains(CANARY), "{path}: {answer}");
        }
        app.stop().await;
    }
}

#[tokio::test]
async fn a_user_exports_their_own_rows_and_an_analyst_those_of_the_tenant() {
    for setup in both() {
        let model = Reply::from(|request| match said(request) {
            1 => Reply::call("add_task", json!({"description": "milk"})),
            _ => Reply::Text("Done."),
        });
        let setup = setup
            .script(vec![model])
            .env("GAVEL_AUTH_MODE", "jwt")
            .env("GAVEL_AUTH_JWT_ISSUER", "https://issuer.example")
            .env("GAVEL_AUTH_JWT_AUDIENCE", "gavel")
            .env("GAVEL_AUTH_JWT_SECRET", SECRET)
            .env("GAVEL_AUTH_JWT_TENANT_CLAIM", "org");
        let app = spawn_app(setup).await;
        let bearer = |user: &str, tenant: &str, roles: &[&str]| format!("Bearer {}", token(user, tenant, roles));
        let callers = [("ann", "acme"), ("bob", "acme"), ("mallory", "rival")];
        for (user, tenant) in callers {
            let own = bearer(user, tenant, &[]);
            let body = json!({"message": "milk"});
            let request = app.request("POST", "/v1/chat", &[("authorization", &own)]);
            Answer::of(request.json(&body)).await.expect(200);
            let run = app.request("POST", "/api/agent/run", &[("authorization", &own)]);
            Answer::of(run.json(&json!({"prompt": "milk"}))).await.expect(200);
        }
        for source in ["decisions", "tool-invocations", "model-turns", "actions"] {
            let ids = async |user: &str, tenant: &str, roles: &[&str]| {
                let own = bearer(user, tenant, roles);
                let rows = app.export(source, "", &[("authorization", &own)]).await;
                let id = |row: &Row| {
                    [
                        &row.get("decision_id").or(row.get("run_id")).unwrap()[..],
                        &row["tenant"],
                    ]
                    .join(" ")
                };
                rows.iter().map(id).collect::<BTreeSet<_>>()
            };
            let (anns, bobs) = (ids("ann", "acme", &[]).await, ids("bob", "acme", &[]).await);
            let all = ids("eve", "acme", &["analyst"]).await;
            assert!(
                !anns.is_empty() && anns.is_disjoint(&bobs),
                "{source}: {anns:?} {bobs:?}"
            );
            assert_eq!(anns.union(&bobs).cloned().collect::<BTreeSet<_>>(), all, "{source}");
            assert!(all.iter().all(|id| id.ends_with(" acme")), "{source}: {all:?}");
            assert!(ids("eve", "acme", &[]).await.is_empty());
        }
        let ann = bearer("ann", "acme", &[]);
        let refused = Answer::of(app.request("GET", "/v1/export/audit", &[("authorization", &ann)])).await;
        refused.problem(403, "forbidden");
        let operators = "/v1/export/tool-invocations?fields=error_message";
        let refused = Answer::of(app.request("GET", operators, &[("authorization", &ann)])).await;
        refused.problem(400, "invalid_request");
        let analyst = bearer("eve", "acme", &["analyst"]);
        let audit = app
            .export("audit", "&content=true", &[("authorization", &analyst)])
            .await;
        assert!(
            !audit.is_empty() && audit.iter().all(|row| row["tenant"] == "acme"),
            "{audit:#?}"
        );
        // A manifest belongs to who took it, and to who sees all rows of the tenant.
        let (id, _) = app.exported("/v1/export/decisions", &[("authorization", &ann)]).await;
        let path = format!("/v1/exports/{id}");
        let (bob, rival) = (bearer("bob", "acme", &[]), bearer("root", "rival", &["analyst"]));
        for (caller, status) in [(&ann, 200), (&analyst, 200), (&bob, 404), (&rival, 404)] {
            let answer = Answer::of(app.request("GET", &path, &[("authorization", caller)])).await;
            assert_eq!(answer.status, status, "{}", answer.body);
        }
        app.stop().await;
    }
}

async fn execute(url: &str, sql: String) {
    if url.starts_with("postgres") {
        let mut database = PgConnection::connect(url).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut database).await.unwrap();
    } else {
        let mut database = SqliteConnection::connect(url).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut database).await.unwrap();
    }
}

/// Copies of the only decision, with long texts; many begin at the same moment.
async fn multiply(app: &App, copies: usize) {
    let url = &app.database_url;
    let is_postgres = url.starts_with("postgres");
    let names = match is_postgres {
        true => {
            "SELECT column_name::text FROM information_schema.columns WHERE table_name = 'decision_log' \
                 AND table_schema = current_schema() ORDER BY ordinal_position"
        }
        false => "SELECT name FROM pragma_table_info('decision_log')",
    };
    let names: Vec<_> = rows(url, names).await.into_iter().flatten().collect();
    let values = names.iter().map(|name| match name.as_str() {
        "id" if is_postgres => "substr(d.id, 1, 24) || lpad(to_hex(n.i), 12, '0')".to_owned(),
        "id" => "substr(d.id, 1, 24) || printf('%012x', n.i)".to_owned(),
        "created_at" => "d.created_at + n.i / 700".to_owned(),
        "message" => format!("'{}'", "x".repeat(2000)),
        name => format!("d.{name}"),
    });
    let (names, values) = (names.join(", "), values.collect::<Vec<_>>().join(", "));
    execute(
        url,
        format!(
            "INSERT INTO decision_log ({names}) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {copies}) \
             SELECT {values} FROM decision_log d, n"
        ),
    )
    .await;
}

/// Promise: an export never ends as if it were whole. All rows are there, whatever page they are on; and when the store
/// breaks between two pages, so does the connection.
#[tokio::test]
async fn an_export_of_many_pages_is_whole_or_broken() {
    const COPIES: usize = 12_000;
    for setup in both() {
        let app = spawn_app(setup.script(vec![Reply::Text("Hello.")])).await;
        app.chat("hi").await;
        multiply(&app, COPIES).await;
        let all = app.export("decisions", "&fields=decision_id,created_at", &[]).await;
        let ids: BTreeSet<_> = all.iter().map(|row| &row["decision_id"]).collect();
        assert_eq!((all.len(), ids.len()), (COPIES + 1, COPIES + 1));
        assert!(all.is_sorted_by_key(|row| (&row["created_at"], &row["decision_id"])));
        let turns = app.export("model-turns", "&fields=decision_id,number", &[]).await;
        assert_eq!(turns.len(), COPIES + 1);

        // A client that does not read keeps the server from reading on.
        let path = "/v1/export/decisions?content=true&format=ndjson";
        let mut response = app.request("GET", path, &[]).send().await.unwrap();
        let id = response.headers()["x-gavel-export"].to_str().unwrap().to_owned();
        let mut bytes = response.chunk().await.unwrap().unwrap().len();
        tokio::time::sleep(Duration::from_millis(500)).await;
        execute(&app.database_url, "ALTER TABLE decision_log RENAME TO gone".to_owned()).await;
        let broken = loop {
            match response.chunk().await {
                Ok(Some(piece)) => bytes += piece.len(),
                Ok(None) => break false,
                Err(_) => break true,
            }
        };
        assert!(broken, "after {bytes} bytes");
        execute(&app.database_url, "ALTER TABLE gone RENAME TO decision_log".to_owned()).await;
        let (_, manifest) = app.get(&format!("/v1/exports/{id}")).await;
        assert_eq!(manifest["complete"], false, "{manifest}");
        let sent = manifest["rows"].as_u64().unwrap();
        assert!((1000..12_000).contains(&sent), "{manifest}");
        app.stop().await;
    }
}
