//! `gavel prices`, and the file of `prices.file`.

use std::fs;

use serde_json::{Value, json};

use super::harness::Place;

fn row(model: &str, cached: &str) -> String {
    format!("[[models]]\nmodel = \"{model}\"\nvalid_from = 2020-01-01\ninput = 1\n{cached}\noutput = 1\n")
}

#[test]
fn the_file_that_the_page_shows_adds_to_the_built_in_prices() {
    let place = Place::new();
    let page = fs::read_to_string("docs/reference/prices.md").unwrap();
    let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    fs::write(place.path().join("prices.toml"), example.unwrap()).unwrap();
    let list = place.run_with(&["prices", "list", "--json"], &[("GAVEL_PRICES", "prices.toml")]);
    let rows: Vec<Value> = list
        .ended(0)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let own = json!({"model": "example-1", "valid_from": "2026-10-01", "valid_to": "2026-12-31", "input": "1.25",
        "cached": "0.125", "output": "10"});
    let built_in = json!({"model": "gemini-4-neon", "valid_from": "2026-11-18", "valid_to": null, "input": "3",
        "cached": "0.15", "output": "15"});
    for row in [
        own,
        built_in,
        json!({"tier": "priority", "factor": "1.8"}),
        json!({"tier": "flex", "factor": "0.5"}),
    ] {
        assert!(rows.contains(&row), "{row}: {rows:#?}");
    }
    let table = place.run(&["prices", "list"]).ended(0);
    assert!(
        table.contains("gemini-4-argon         2026-10-13  2026-11-30  2          -"),
        "{table}"
    );
}

#[test]
fn an_invalid_file_prevents_the_start_and_names_line_and_field() {
    let place = Place::new();
    let file = row("m", "cached = -1") + &row("m", "valid_to = 2021-01-01");
    fs::write(place.path().join("p.toml"), file).unwrap();
    for command in [&["chat", "hello"][..], &["prices", "list"], &["doctor"]] {
        let ran = place.run_with(command, &[("GAVEL_PRICES", "p.toml")]);
        let all = ran.out + &ran.err;
        assert_ne!(ran.status, 0, "{command:?}: {all}");
        for error in [
            "p.toml:5: models[0].cached: found -1",
            "p.toml:7: models[1]: found m on days that the row of line 1 has too",
        ] {
            assert!(all.contains(error), "{command:?}: {all}");
        }
    }
    let ran = place.run_with(&["chat", "hello"], &[("GAVEL_PRICES", "none.toml")]);
    assert!(
        ran.status == 2 && ran.err.contains("found none.toml, which cannot be read"),
        "{}",
        ran.err
    );
}

#[test]
fn check_names_each_model_that_answered_without_a_price() {
    let place = Place::new();
    for _ in 0..6 {
        place.run(&["chat", "hello"]).ended(0);
    }
    let check = |file: &str| {
        fs::write(place.path().join("p.toml"), file).unwrap();
        place.run_with(&["prices", "check"], &[("GAVEL_PRICES", "p.toml")])
    };
    // The demo model costs nothing.
    assert!(check("").ended(0).contains("every model"));
    let database = rusqlite::Connection::open(place.path().join("gavel.db")).unwrap();
    let evil = "a\\\"b*";
    let answered = [
        ("priced", 9),
        ("uncached", 0),
        ("cached", 9),
        (evil, 0),
        ("unknown", 0),
        ("unknown", 9),
    ];
    for (n, (model, cached)) in (0..).zip(answered) {
        let sql = "UPDATE decision_log SET model = ?2, cached_tokens = ?3 \
                   WHERE id = (SELECT id FROM decision_log ORDER BY id LIMIT 1 OFFSET ?1)";
        assert_eq!(database.execute(sql, (n, model, cached)).unwrap(), 1);
    }
    let file = row("priced", "cached = 0.1") + &row("uncached", "") + &row("cached", "");
    let ran = check(&file);
    let mut found: Vec<_> = ran.out.lines().collect();
    found.sort_unstable();
    let expected = [
        "a\\\"b* answered in the last 7 days and has no price",
        "cached has no price of cached tokens, which it used in the last 7 days",
        "unknown answered in the last 7 days and has no price",
    ];
    assert_eq!((ran.status, found), (1, expected.to_vec()), "{}", ran.err);
    assert!(ran.err.contains("prices.file (GAVEL_PRICES)"), "{}", ran.err);
    // What is older does not count.
    let sql = "UPDATE decision_log SET created_at = created_at - 9 * 86400000000 WHERE model NOT LIKE '%cached'";
    assert_eq!(database.execute(sql, ()).unwrap(), 4);
    let ran = check(&row("cached", "cached = 1"));
    assert_eq!(
        (ran.status, ran.out.trim_end()),
        (1, "uncached answered in the last 7 days and has no price")
    );
}
