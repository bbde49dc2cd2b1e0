//! The pages of the bundled servers have every setting that the server reads, with its default.

use regex::Regex;

/// The options of a server, and the page that has them.
const SERVERS: [(&str, &str); 4] = [
    (
        include_str!("../../../mcp-servers/docker/src/args.rs"),
        include_str!("../../../docs/reference/docker-server.md"),
    ),
    (
        include_str!("../../../mcp-servers/github/src/args.rs"),
        include_str!("../../../docs/reference/github-server.md"),
    ),
    (
        include_str!("../../../mcp-servers/shell/src/args.rs"),
        include_str!("../../../docs/reference/shell-server.md"),
    ),
    (
        include_str!("../../../mcp-servers/web/src/args.rs"),
        include_str!("../../../docs/reference/web-server.md"),
    ),
];

/// Each variable with the default that `--help` names, if it names one.
fn settings(args: &str) -> Vec<(String, Option<String>)> {
    let variable = Regex::new(r#"env = "([A-Z_]+)""#).unwrap();
    let default = Regex::new(r"\[default: ([^\]]+)\]").unwrap();
    let mut settings = Vec::new();
    let mut named = None;
    for line in args.lines().map(str::trim) {
        if line.starts_with("///") {
            named = default.captures(line).map(|found| found[1].to_owned()).or(named);
        } else if let Some(found) = variable.captures(line) {
            settings.push((found[1].to_owned(), named.take()));
        }
    }
    settings
}

/// Reads the table of settings alone: a variable that an example names is not described by it.
#[test]
fn the_page_of_a_server_describes_each_of_its_settings_with_the_default() {
    let mut checked = 0;
    for (args, page) in SERVERS {
        let table = page.split("\n## Settings\n").nth(1).unwrap();
        let table = table.split("\n## ").next().unwrap();
        for (variable, default) in settings(args) {
            let quoted = format!("`{variable}`");
            let row = table.lines().find(|line| {
                let cells: Vec<_> = line.split('|').collect();
                cells.len() == 5 && cells[1].contains(&quoted)
            });
            let row = row.unwrap_or_else(|| panic!("{variable} has no row"));
            if let Some(default) = default {
                let shown = row.split('|').nth(3).unwrap().trim().replace('`', "");
                // One row may have two settings.
                assert!(
                    shown == default || shown.split(", ").any(|shown| shown == default),
                    "the default of {variable}: {shown}"
                );
            }
            checked += 1;
        }
    }
    assert!(checked > 40, "{checked} settings were found");
}
