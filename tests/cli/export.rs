//! `gavel export`.

use std::fs;
use std::io::Write;
use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::harness::Place;
use super::hostile::server;

fn names(place: &Place) -> Vec<String> {
    let all = fs::read_dir(place.path().join("logs")).unwrap();
    let mut names: Vec<_> = all
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_directory_gets_a_file_for_each_day_and_resume_keeps_what_is_whole() {
    let place = Place::new();
    place.run(&["chat", "add a task to call mom"]).ended(0);
    let export = [
        "export",
        "tool-invocations",
        "--since",
        "3d",
        "--format",
        "ndjson",
        "--out",
        "logs",
    ];
    let done = place.run(&export);
    assert_eq!(done.status, 0, "{}", done.err);
    assert!(done.err.contains("1 row in 4 files"), "{}", done.err);
    let files = names(&place);
    assert_eq!(files.len(), 8, "{files:?}");
    assert!(
        files.iter().all(|name| name.starts_with("tool-invocations-")),
        "{files:?}"
    );
    let path = |name: &str| place.path().join("logs").join(name);
    let text = fs::read_to_string(path(&files[6])).unwrap();
    let row: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&row["tool"], &row["success"]),
        (&json!("add_task"), &json!(true)),
        "{text}"
    );
    let kept: Value = serde_json::from_str(&fs::read_to_string(path(&files[7])).unwrap()).unwrap();
    assert_eq!(kept["sha256"], hex::encode(Sha256::digest(&text)), "{kept}");

    let again = place.run(&export);
    assert_eq!(again.status, 2, "{}", again.err);
    assert!(again.err.contains("already exists: --resume keeps"), "{}", again.err);
    // A day whose file was changed is replaced, and so is one that was not over.
    fs::write(path(&files[0]), "changed").unwrap();
    let resumed = place.run(&[&export[..], &["--resume"]].concat());
    assert_eq!(resumed.status, 0, "{}", resumed.err);
    assert!(
        resumed.err.contains("1 row in 4 files, 2 of them from before"),
        "{}",
        resumed.err
    );
    assert!(fs::read_to_string(path(&files[0])).unwrap().contains("_manifest"));
    assert_eq!(names(&place), files, "nothing else remains");

    let entered = place.run(&["audit", "list", "--kind", "exported", "--json"]).rows();
    assert_eq!(
        entered.as_array().unwrap().len(),
        6,
        "one for each file that was taken: {entered}"
    );
    place.run(&["audit", "verify"]).ended(0);
}

#[test]
fn standard_output_gets_the_bytes_alone() {
    let place = Place::new();
    place.run(&["chat", "hello"]).ended(0);
    let stream = [
        "export",
        "decisions",
        "--since",
        "1h",
        "--format",
        "csv",
        "--out",
        "-",
        "--fields",
        "message,status",
    ];
    assert_eq!(place.run(&stream).ended(0), "message,status\r\nhello,closed\r\n");
    let unknown = place.run(&[
        "export",
        "decisions",
        "--since",
        "1h",
        "--out",
        "-",
        "--fields",
        "messages,status,no",
    ]);
    assert_eq!(unknown.status, 2, "{}", unknown.err);
    assert!(
        unknown.err.contains("[\"messages\", \"no\"]") && unknown.err.contains("message, "),
        "{}",
        unknown.err
    );
    let other = place.run(&[
        "export",
        "decisions",
        "--since",
        "1h",
        "--out",
        "-",
        "--user",
        "bob",
        "--format",
        "csv",
    ]);
    assert_eq!(other.ended(0).lines().count(), 1, "only the names");
}

#[test]
fn without_a_database_there_is_nothing_to_export_and_none_is_made() {
    let place = Place::new();
    let ran = place.run(&["export", "decisions", "--since", "1h", "--out", "-"]);
    assert_eq!(ran.status, 1, "{}", ran.err);
    assert!(ran.err.contains("there is no database"), "{}", ran.err);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

/// What arrives is compared with what was sent: a cut body, and bytes that a proxy changed, are no export.
#[test]
fn what_is_not_whole_is_reported_and_leaves_no_file() {
    for (body, words) in [
        ("5\r\na\r\nb,\r\n", "the export broke after 5 B"),
        ("5\r\na\r\nb,\r\n0\r\n\r\n", "is not what was sent"),
    ] {
        let (url, _) = server(Arc::new(move |request: &str, stream: &mut std::net::TcpStream| {
            let answer = if request.contains("/v1/exports/") {
                let manifest = json!({
                    "export_id": "01890a5d-ac96-774b-bcce-b302099a8057", "source": "decisions", "format": "csv",
                    "filter": null, "fields": ["a"], "raw": false, "from": null, "to": null, "rows_of": null, "rows": 2,
                    "first": null, "last": null, "bytes": 9, "sha256": "00", "complete": true,
                })
                .to_string();
                format!(
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{manifest}",
                    manifest.len()
                )
            } else {
                let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\
                            x-gavel-export: 01890a5d-ac96-774b-bcce-b302099a8057\r\n\r\n";
                format!("{head}{body}")
            };
            let _ = stream.write_all(answer.as_bytes());
        }));
        let place = Place::new();
        let export = [
            "export",
            "decisions",
            "--since",
            "1h",
            "--format",
            "csv",
            "--out",
            "logs",
            "--server",
            &url,
        ];
        let ran = place.run(&export);
        assert_eq!(ran.status, 1, "{}", ran.err);
        assert!(
            ran.err.contains(words) && ran.err.contains("--resume continues"),
            "{}",
            ran.err
        );
        assert!(names(&place).is_empty(), "{:?}", names(&place));
    }
}
