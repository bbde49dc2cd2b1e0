//! The reference names every code and every route of gavel, and no others.

use gavel::domain::decision::Outcome;
use gavel::domain::tool::FailureCode;
use gavel::http::error::Code;
use regex::Regex;

use super::page;

/// The rows of a table: their cells.
fn rows(text: &str) -> Vec<Vec<String>> {
    let lines = text.lines().filter(|line| line.starts_with("| "));
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect();
    lines.map(cells).collect()
}

/// What a page has below a heading.
fn section(page: &str, heading: &str) -> String {
    let (_, rest) = page.split_once(&format!("\n## {heading}\n")).unwrap();
    rest.split("\n## ").next().unwrap().to_owned()
}

/// R-16: each code has an anchor, its status, what happened and what to do.
#[test]
fn the_page_of_errors_has_each_code_of_a_problem_and_no_other() {
    let problems = section(&page("docs/reference/errors.md"), "Problems");
    let anchor = Regex::new(r#"^<a id="([a-z_]+)"></a>`([a-z_]+)`$"#).unwrap();
    let mut listed: Vec<(String, String)> = Vec::new();
    for row in rows(&problems).iter().skip(2) {
        let found = anchor.captures(&row[1]).unwrap_or_else(|| panic!("{row:?}"));
        assert_eq!(found[1], found[2], "{row:?}");
        assert!(row[3].ends_with('.') && row[4].ends_with('.'), "{row:?}");
        listed.push((found[1].to_owned(), row[2].clone()));
    }
    let mut codes: Vec<_> = Code::ALL
        .iter()
        .map(|code| (code.as_str().to_owned(), code.status().to_string()))
        .collect();
    listed.sort();
    codes.sort();
    assert_eq!(listed, codes);
}

/// R-16: the page names every code that an action or a run can have, in its class.
#[test]
fn every_code_of_a_call_and_of_a_failed_run_is_in_the_list() {
    let rows = rows(&section(&page("docs/reference/errors.md"), "Codes of actions and runs"));
    let named = |column: usize, code: &str| {
        let code = format!("`{code}`");
        rows.iter().filter(|row| row[column].contains(&code)).count()
    };
    for code in FailureCode::ALL {
        assert_eq!(named(2, code.as_str()), 1, "{code:?} of an action");
    }
    // Refusals, limits and rejections at the edge make no failed run.
    for outcome in Outcome::ALL {
        let of_a_run = match outcome {
            Outcome::TaskCompleted | Outcome::ResponseGiven | Outcome::UnclearIntent | Outcome::MultipleMatches => 0,
            Outcome::OutOfScope | Outcome::RateLimited | Outcome::Overloaded | Outcome::UserInput => 0,
            _ => 1,
        };
        assert_eq!(named(3, &outcome.code()), of_a_run, "{outcome:?} of a run");
    }
}

/// The table of routes and the description of the API name the same ones.
#[test]
fn the_page_of_the_api_has_each_route_and_no_other() {
    let routes = section(&page("docs/reference/http-api.md"), "Routes");
    let mut listed: Vec<_> = rows(&routes)
        .iter()
        .filter_map(|row| row[1].strip_prefix('`')?.strip_suffix('`').map(str::to_owned))
        .collect();
    let description = serde_json::to_value(gavel::http::document()).unwrap();
    let mut described = Vec::new();
    for (path, operations) in description["paths"].as_object().unwrap() {
        let methods = ["get", "post", "put", "delete"].into_iter();
        let methods = methods.filter(|method| operations.get(method).is_some());
        described.extend(methods.map(|method| format!("{} {path}", method.to_uppercase())));
    }
    listed.sort();
    described.sort();
    assert_eq!(listed, described);
}
