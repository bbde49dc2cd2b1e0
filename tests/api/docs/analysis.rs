//! The questions of docs/how-to/analyze.md: asked in each way, they have the same answer.

use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Map, Value, json};
use tokio::io::AsyncWriteExt;

use super::{Served, Shell, blocks, execute, page, root};
use crate::audit::rows;
use crate::harness::client;
use crate::postgres;

type Row = Map<String, Value>;

/// Python with DuckDB and pandas, in the build directory. Without PyPI the test fails, because nothing else can show this.
async fn python() -> PathBuf {
    const PACKAGES: [&str; 3] = ["duckdb==2.0.1", "pandas==3.1.1", "pyarrow==26.0.1"];
    let target = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned();
    let venv = target.join("analysis-venv");
    let (installed, python) = (venv.join("installed"), venv.join("bin/python"));
    if std::fs::read_to_string(&installed).is_ok_and(|packages| packages == PACKAGES.join(" ")) {
        return python;
    }
    let pip = ["-m", "pip", "install", "--quiet"];
    let steps: [(PathBuf, Vec<&str>); 2] = [
        ("python3".into(), vec!["-m", "venv", "--clear", venv.to_str().unwrap()]),
        (python.clone(), [&pip[..], &PACKAGES].concat()),
    ];
    for (program, arguments) in steps {
        let ran = tokio::process::Command::new(program)
            .args(arguments)
            .output()
            .await
            .unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    }
    std::fs::write(installed, PACKAGES.join(" ")).unwrap();
    python
}

/// 101 decisions of three users on five days: the percentiles of an odd number are values of rows.
async fn fill(served: &Served, url: &str) {
    for n in 0..101 {
        let (user, message) = (
            ["ann", "bob", "carol"][n % 3],
            ["add a task to call mom", "hello"][n % 4 / 3],
        );
        let chat = client().post(format!("http://127.0.0.1:{}/v1/chat", served.port));
        let answer = chat
            .json(&json!({"message": message, "user_id": user}))
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 200);
    }
    let numbered = "WITH r AS (SELECT id, row_number() OVER (ORDER BY id) AS n FROM decision_log)";
    execute(
        url,
        &format!(
            "{numbered} UPDATE decision_log d SET created_at = created_at - n % 5 * 86400000000, duration_us = 50000 + n * 7000, \
             model_us = n * 5000, tool_us = n % 40 * 1000, cost_nano = n * 1000000, requested_model = 'asked-' || n % 2, \
             model = 'answers-' || n % 3, definition_hash = CASE n % 2 WHEN 0 THEN 'OLD' ELSE 'NEW' END, \
             outcome_category = CASE WHEN n % 8 = 0 THEN 'ERROR:INTERNAL' ELSE outcome_category END FROM r WHERE r.id = d.id; \
             {numbered} UPDATE tool_invocation_log t SET created_at = d.created_at, decided_by = 'rule tasks' \
             FROM r, decision_log d WHERE r.id = t.decision_id AND d.id = r.id; \
             {numbered} UPDATE tool_invocation_log t SET status = 'failed', error_code = 'timeout', result = NULL \
             FROM r WHERE r.id = t.decision_id AND n % 7 = 1; \
             {numbered} UPDATE tool_invocation_log t SET status = 'not_sent', error_code = 'denied', result = NULL, \
             started_at = NULL, policy = 'deny' FROM r WHERE r.id = t.decision_id AND n % 7 = 2"
        ),
    )
    .await;
}

/// What a section of the page shows: SQL, commands and Python.
fn asked(section: &str) -> [String; 3] {
    let shown = blocks(section);
    let [sql, commands, python] = &shown[..] else {
        panic!("{section}")
    };
    [sql.clone(), commands.clone(), python.clone()]
}

/// The rows that an answer of the API has, wherever it has them.
fn of_api(answer: &str) -> Vec<Row> {
    let answer: Value = serde_json::from_str(answer).unwrap_or_else(|_| panic!("{answer}"));
    let found = ["rows", "outcomes", "decisions"]
        .iter()
        .find_map(|name| answer[name].as_array());
    let found = found.unwrap_or_else(|| panic!("{answer}"));
    found.iter().map(|row| row.as_object().unwrap().clone()).collect()
}

/// The values of these columns, in a common form and order: times as days, shares as their count.
fn common(rows: &[Row], columns: &[String]) -> Vec<Vec<Value>> {
    let value = |row: &Row, column: &String| {
        let value = row
            .get(column)
            .unwrap_or_else(|| panic!("{column} is missing: {row:?}"));
        match value {
            Value::String(time) if column == "bucket" => json!(time[..10]),
            Value::String(dollars) if column.starts_with("sum(") => json!(dollars.parse::<f64>().unwrap()),
            Value::Object(share) => json!(share["k"].as_f64()),
            Value::Number(number) => json!(number.as_f64()),
            other => other.clone(),
        }
    };
    let mut rows: Vec<Vec<Value>> = rows
        .iter()
        .map(|row| columns.iter().map(|column| value(row, column)).collect())
        .collect();
    rows.sort_by_key(|row| row.iter().map(Value::to_string).collect::<Vec<_>>());
    rows
}

/// Percentiles of gavel are within 9 % of the true ones.
fn assert_same(title: &str, way: &str, columns: &[String], expected: &[Vec<Value>], found: &[Vec<Value>]) {
    assert_eq!(expected.len(), found.len(), "{title}, {way}: {expected:?} {found:?}");
    for (expected, found) in expected.iter().zip(found) {
        for ((column, expected), found) in columns.iter().zip(expected).zip(found) {
            let same = match (expected.as_f64(), found.as_f64()) {
                (Some(expected), Some(found)) => {
                    let error = if column.starts_with('p') { 0.09 } else { 1e-9 };
                    (expected - found).abs() <= expected.abs() * error
                }
                _ => expected == found,
            };
            assert!(same, "{title}, {way}, {column}: {expected} {found}");
        }
    }
}

/// Ten questions; each has the same answer by SQL on PostgreSQL, by command, from the API in one request, in DuckDB and in
/// pandas.
#[tokio::test]
async fn ten_questions_have_the_same_answer_in_each_way() {
    let url = postgres::database().await;
    let environment = [("DATABASE_URL", &*url), ("GAVEL_RATE_LIMIT_BURST", "1000")];
    let served = Served::start(&environment).await;
    fill(&served, &url).await;
    let text = page("docs/how-to/analyze.md");
    let (setup, _) = text.split_once("\n## 1. ").unwrap();
    let sections: Vec<_> = text
        .split("\n## ")
        .skip(2)
        .map(|section| section.split_once('\n').unwrap())
        .collect();
    assert_eq!(sections.len(), 10);
    let shell = Shell {
        directory: served.directory.path().to_owned(),
        port: served.port,
    };
    let paste = async |commands: &str| shell.prints(&format!("export DATABASE_URL='{url}'\n{commands}")).await;
    let shown = blocks(setup);
    let [export, views, frames] = &shown[..] else {
        panic!("{shown:?}")
    };
    paste(export).await;

    let questions: Vec<_> = sections
        .iter()
        .map(|(title, section)| (*title, asked(section)))
        .collect();
    let about = json!({
        "views": [views], "frames": frames,
        "questions": questions.iter().map(|(_, [sql, _, python])| json!({"sql": sql, "python": python})).collect::<Vec<_>>(),
    });
    let mut child = tokio::process::Command::new(python().await)
        .arg(root().join("tests/sources/answers.py"))
        .current_dir(served.directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(about.to_string().as_bytes())
        .await
        .unwrap();
    let ran = child.wait_with_output().await.unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let files: Vec<[Vec<Row>; 2]> = serde_json::from_slice(&ran.stdout).unwrap();

    for ((title, [sql, commands, _]), [duckdb, pandas]) in questions.iter().zip(&files) {
        let columns: Vec<_> = duckdb[0].keys().cloned().collect();
        let expected = common(duckdb, &columns);
        let sql = sql.trim().trim_end_matches(';');
        let sql = format!("SET search_path = gavel_v1; SELECT json_agg(row_to_json(q)) FROM ({sql}) q");
        let postgres: Vec<Row> = serde_json::from_str(&rows(&url, &sql).await[0][0]).unwrap();
        let (command, curl) = commands.split_once("    curl ").unwrap();
        let listed = paste(&format!("{} --json", command.trim_end())).await;
        let listed = match command.contains("gavel decisions list") {
            true => listed.lines().map(|row| serde_json::from_str(row).unwrap()).collect(),
            false => of_api(&listed),
        };
        let variables = command.lines().filter(|line| line.trim_start().starts_with("week="));
        let variables: String = variables.map(|line| format!("{line}\n")).collect();
        let api = of_api(&paste(&format!("{variables}curl {curl}")).await);
        for (way, found) in [
            ("PostgreSQL", postgres),
            ("gavel", listed),
            ("API", api),
            ("pandas", pandas.clone()),
        ] {
            assert_same(title, way, &columns, &expected, &common(&found, &columns));
        }
    }
}
