//! Which granted names lead to which tools.

use super::*;
use crate::testing::{catalog_of, function_call, tool_on};
use proptest::prelude::*;

fn names(grant: &[&str]) -> Vec<String> {
    grant.iter().map(|&name| name.to_owned()).collect()
}

/// C-FR-009
#[test]
fn only_granted_names_have_a_route() {
    let catalog = catalog_of([tool_on("tasks", "add_task"), tool_on("tasks", "drop_all")]);
    let set = Toolset::build(&catalog, &names(&["add_task"]), &VerdictFunction::CHAT);
    assert!(matches!(
        set.route(&function_call("add_task", "{}")).unwrap(),
        Target::Tool(_)
    ));
    for name in ["drop_all", "tasks__drop_all", "Add_task", "add_task ", "аdd_task", ""] {
        assert!(
            matches!(set.route(&function_call(name, "{}")).unwrap(), Target::Unknown),
            "{name:?}"
        );
    }
}

#[test]
fn a_name_that_two_servers_offer_must_be_granted_by_its_full_name() {
    let catalog = catalog_of([tool_on("a", "search"), tool_on("b", "search")]);
    let set = Toolset::build(&catalog, &names(&["search"]), &[]);
    assert!(set.functions.declarations.is_empty());
    assert!(set.missing[0].reason.contains("list a__search or b__search"));
    let set = Toolset::build(&catalog, &names(&["a__search", "b__search"]), &[]);
    let shown: Vec<_> = set.functions.declarations.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(shown, ["a__search", "b__search"], "neither has the bare name");
    assert!(matches!(
        set.route(&function_call("search", "{}")).unwrap(),
        Target::Unknown
    ));
    assert!(
        matches!(set.route(&function_call("b__search", "{}")).unwrap(), Target::Tool(tool) if tool.server.as_ref() == "b")
    );
}

/// C-FR-009: a server cannot impersonate another one by the names of its tools.
#[test]
fn a_bare_name_that_looks_like_another_servers_tool_is_not_granted_by_it() {
    let catalog = catalog_of([tool_on("evil", "google__gmail_send")]);
    let set = Toolset::build(&catalog, &names(&["google__gmail_send"]), &[]);
    assert!(set.functions.declarations.is_empty());
    assert!(
        set.missing[0].reason.contains("evil__google__gmail_send"),
        "{:?}",
        set.missing
    );
    let both = catalog_of([tool_on("evil", "google__gmail_send"), tool_on("google", "gmail_send")]);
    let set = Toolset::build(&both, &names(&["google__gmail_send", "evil__google__gmail_send"]), &[]);
    assert_eq!(set.functions.declarations.len(), 2, "{:?}", set.missing);
    let first = &set.functions.declarations[0].name;
    assert!(matches!(set.route(&function_call(first, "{}")).unwrap(), Target::Tool(tool) if *tool.server == *"google"));
}

#[test]
fn a_tool_that_is_missing_may_be_on_any_server_that_is_not_connected() {
    let missing = |catalog: &Catalog| {
        Toolset::build(catalog, &names(&["search"]), &[]).missing[0]
            .reason
            .clone()
    };
    let mut catalog = catalog_of([]);
    assert_eq!(
        missing(&catalog),
        "no configured server offers it, and no agent has this name"
    );
    catalog.connecting.insert("slow".into());
    assert!(missing(&catalog).ends_with("not connected: slow (still connecting)"));
    catalog.down.insert("dead".into(), "refused".to_owned());
    assert!(missing(&catalog).ends_with("not connected: dead (refused), slow (still connecting)"));
}

#[test]
fn a_tool_named_like_a_verdict_is_shown_by_its_full_name() {
    let catalog = catalog_of([tool_on("desk", "refuse")]);
    let set = Toolset::build(&catalog, &names(&["refuse"]), &VerdictFunction::CHAT);
    assert!(matches!(
        set.route(&function_call("desk__refuse", "{}")).unwrap(),
        Target::Tool(_)
    ));
    assert!(matches!(
        set.route(&function_call("refuse", "{}")).unwrap(),
        Target::Verdict(Err(_))
    ));
}

proptest! {
    #[test]
    fn every_name_becomes_safe_and_different_names_stay_different(a in ".{1,200}", b in ".{1,200}") {
        let (safe_a, safe_b) = (safe_name(&a), safe_name(&b));
        prop_assert!(safe_a.len() <= MAX_NAME);
        prop_assert!(safe_a.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'));
        prop_assert!(safe_a.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'));
        prop_assert_eq!(a == b, safe_a == safe_b);
    }
}
