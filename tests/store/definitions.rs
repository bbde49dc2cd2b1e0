//! Definitions from the API, with their versions.

use std::sync::Arc;

use gavel::domain::ids::{ProjectId, TenantId};
use gavel::ports::definitions::{Definitions, NewVersion, PutVersion};
use gavel::ports::records::ListQuery;

use crate::support::{T0, TestDb, tenant};

fn project() -> ProjectId {
    ProjectId::parse("default").unwrap()
}

fn version(agent: &str, content: &str) -> NewVersion {
    NewVersion {
        tenant: tenant(),
        project: project(),
        agent: agent.into(),
        hash: format!("hash of {content}").into(),
        definition: format!(r#"{{"words":"{content}"}}"#).into(),
        author: "key:ops".into(),
        created_at: T0,
        expected: None,
        beside: None,
    }
}

/// "a project stays whole": a definition is stored only if the others of its project have not changed since it was
/// checked, on any process. Of twenty concurrent ones that were checked against the same others, one is stored.
pub(crate) async fn of_definitions_checked_against_the_same_others_one_is_stored(db: TestDb) {
    let stores = [db.open().await, db.open().await];
    assert_eq!(stores[0].put(version("a", "one")).await.unwrap(), PutVersion::Made(1));
    let mut elsewhere = version("a", "one");
    elsewhere.project = ProjectId::parse("other").unwrap();
    assert_eq!(stores[0].put(elsewhere).await.unwrap(), PutVersion::Made(1));
    let beside = Arc::new(stores[1].numbers(&tenant(), &project()).await.unwrap());
    let mut racing = tokio::task::JoinSet::new();
    for n in 0..20 {
        let store = Arc::clone(&stores[n % 2]);
        let change = NewVersion {
            beside: Some(Arc::clone(&beside)),
            ..version(&format!("b{n}"), "one")
        };
        racing.spawn(async move { store.put(change).await.unwrap() });
    }
    let mut answers = racing.join_all().await;
    answers.sort_by_key(|put| *put == PutVersion::Changed);
    assert_eq!(answers[0], PutVersion::Made(1));
    assert!(
        answers[1..].iter().all(|put| *put == PutVersion::Changed),
        "{answers:?}"
    );
    assert_eq!(stores[0].current(&tenant(), &project()).await.unwrap().len(), 2);
}

/// Every change is a new version, identical content is not, and older versions stay unchanged.
pub(crate) async fn a_change_makes_a_version_and_identical_content_does_not(db: TestDb) {
    let store = db.open().await;
    assert_eq!(store.put(version("b", "one")).await.unwrap(), PutVersion::Made(1));
    assert_eq!(store.put(version("b", "one")).await.unwrap(), PutVersion::Same(1));
    assert_eq!(store.put(version("b", "two")).await.unwrap(), PutVersion::Made(2));
    // A rollback is a put of the old content.
    assert_eq!(store.put(version("b", "one")).await.unwrap(), PutVersion::Made(3));
    assert_eq!(store.put(version("a", "one")).await.unwrap(), PutVersion::Made(1));

    let (one, two) = (r#"{"words":"one"}"#, r#"{"words":"two"}"#);
    for (number, words) in [(1, one), (2, two), (3, one)] {
        let kept = store
            .version(&tenant(), &project(), "b", number)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            (kept.about.version, &*kept.definition, kept.about.current),
            (number, words, number == 3)
        );
        assert_eq!((&*kept.about.author, kept.about.created_at.0), ("key:ops", T0));
    }
    assert!(store.version(&tenant(), &project(), "b", 4).await.unwrap().is_none());
    let numbers = store.numbers(&tenant(), &project()).await.unwrap();
    assert_eq!(numbers, [("a".into(), 1), ("b".into(), 3)].into());
    let current = store.current(&tenant(), &project()).await.unwrap();
    let reported: Vec<_> = current.iter().map(|kept| (&*kept.agent, kept.version)).collect();
    assert_eq!(reported, [("a", 1), ("b", 3)]);
    assert_eq!(&*current[1].definition, one);
}

/// Newest first, page by page, however many there are; a token is valid only for the list that it came from.
pub(crate) async fn versions_come_in_pages(db: TestDb) {
    let store = db.open().await;
    for n in 1..=5 {
        store.put(version("a", &format!("{n}"))).await.unwrap();
        store.put(version("b", &format!("{n}"))).await.unwrap();
    }
    let page = async |agent: &'static str, token: Option<String>| {
        let query = ListQuery {
            page_size: 2,
            page_token: token,
            ..ListQuery::default()
        };
        store.versions(&tenant(), &project(), agent, &query).await
    };
    let (mut token, mut reported) = (None, Vec::new());
    loop {
        let read = page("a", token).await.unwrap();
        assert!(read.items.len() <= 2);
        reported.extend(
            read.items
                .iter()
                .map(|one| (one.version, one.current, one.definition_hash.clone())),
        );
        token = read.next_page_token;
        match &token {
            None => break,
            Some(token) => assert!(page("b", Some(token.clone())).await.is_err(), "another list's token"),
        }
    }
    let expected: Vec<_> = (1..=5).rev().map(|n| (n, n == 5, format!("hash of {n}"))).collect();
    assert_eq!(reported, expected);
    for invalid in ["", "x", "AAAA"] {
        assert!(page("a", Some(invalid.to_owned())).await.is_err(), "{invalid:?}");
    }
}

/// A change of a version that is no longer current is a conflict, and the error names the current one.
pub(crate) async fn a_change_of_an_outdated_version_is_a_conflict(db: TestDb) {
    let store = db.open().await;
    let expecting = |content: &str, expected| NewVersion {
        expected: Some(expected),
        ..version("a", content)
    };
    assert_eq!(store.put(expecting("one", 1)).await.unwrap(), PutVersion::Conflict(0));
    assert_eq!(store.put(expecting("one", 0)).await.unwrap(), PutVersion::Made(1));
    assert_eq!(store.put(expecting("one", 0)).await.unwrap(), PutVersion::Conflict(1));
    assert_eq!(store.put(expecting("two", 1)).await.unwrap(), PutVersion::Made(2));
    assert_eq!(store.put(expecting("two", 2)).await.unwrap(), PutVersion::Same(2));
    assert_eq!(store.put(expecting("three", 1)).await.unwrap(), PutVersion::Conflict(2));
    assert_eq!(db.count("SELECT COUNT(*) FROM agent_definition").await, 2);
}

/// Of many concurrent changes of one version, on two processes, one succeeds. No change is lost silently.
pub(crate) async fn of_twenty_concurrent_changes_one_succeeds(db: TestDb) {
    let stores = [db.open().await, db.open().await];
    for expected in [Some(0), None] {
        let mut racing = tokio::task::JoinSet::new();
        for n in 0..20 {
            let store = Arc::clone(&stores[n % 2]);
            let change = NewVersion {
                expected,
                ..version("a", &format!("{expected:?} {n}"))
            };
            racing.spawn(async move { store.put(change).await.unwrap() });
        }
        let answers = racing.join_all().await.into_iter();
        let mut made: Vec<_> = answers
            .filter_map(|put| match put {
                PutVersion::Made(version) => Some(version),
                PutVersion::Conflict(1) if expected.is_some() => None,
                other => panic!("{other:?}"),
            })
            .collect();
        made.sort_unstable();
        match expected {
            Some(_) => assert_eq!(made, [1]),
            None => assert_eq!(made, (2..=21).collect::<Vec<_>>()),
        }
    }
}

/// Agents of another tenant or project are not found.
pub(crate) async fn definitions_of_another_tenant_or_project_are_not_found(db: TestDb) {
    let store = db.open().await;
    let (other_tenant, other_project) = (TenantId::parse("other").unwrap(), ProjectId::parse("other").unwrap());
    let mut theirs = version("a", "theirs");
    theirs.tenant = other_tenant.clone();
    let mut elsewhere = version("a", "elsewhere");
    elsewhere.project = other_project.clone();
    for put in [version("a", "mine"), theirs, elsewhere] {
        assert_eq!(store.put(put).await.unwrap(), PutVersion::Made(1));
    }
    for (tenant, project, hash) in [
        (&tenant(), &project(), "hash of mine"),
        (&other_tenant, &project(), "hash of theirs"),
        (&tenant(), &other_project, "hash of elsewhere"),
    ] {
        let current = store.current(tenant, project).await.unwrap();
        assert_eq!(current.len(), 1);
        let one = store.version(tenant, project, "a", 1).await.unwrap().unwrap();
        assert_eq!(
            (&*one.about.definition_hash, &one.definition),
            (hash, &current[0].definition)
        );
        assert_eq!(store.numbers(tenant, project).await.unwrap(), [("a".into(), 1)].into());
        let listed = store
            .versions(
                tenant,
                project,
                "a",
                &ListQuery {
                    page_size: 9,
                    ..ListQuery::default()
                },
            )
            .await;
        let listed = listed.unwrap().items;
        assert_eq!((listed.len(), &*listed[0].definition_hash), (1, hash));
    }
    assert!(store.current(&other_tenant, &other_project).await.unwrap().is_empty());
}
