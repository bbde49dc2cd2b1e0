//! Definitions that came by the API, with their versions.

use std::sync::Arc;

use gavel::domain::ids::{ProjectId, TenantId};
use gavel::ports::definitions::{Definitions, NewVersion, PutVersion};

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
    }
}

/// Issue 3.8: every change is a new version, the same content is none, and older ones stay as they were.
pub(crate) async fn a_change_makes_a_version_and_the_same_content_makes_none(db: TestDb) {
    let store = db.open().await;
    assert_eq!(store.put(version("b", "one")).await.unwrap(), PutVersion::Made(1));
    assert_eq!(store.put(version("b", "one")).await.unwrap(), PutVersion::Same(1));
    assert_eq!(store.put(version("b", "two")).await.unwrap(), PutVersion::Made(2));
    // To roll back is to put the old content again.
    assert_eq!(store.put(version("b", "one")).await.unwrap(), PutVersion::Made(3));
    assert_eq!(store.put(version("a", "one")).await.unwrap(), PutVersion::Made(1));

    let versions = store.versions(&tenant(), &project(), "b").await.unwrap();
    let told: Vec<_> = versions.iter().map(|kept| (kept.version, &*kept.definition)).collect();
    let (one, two) = (r#"{"words":"one"}"#, r#"{"words":"two"}"#);
    assert_eq!(told, [(3, one), (2, two), (1, one)]);
    assert_eq!((&*versions[0].author, versions[0].created_at), ("key:ops", T0));
    let current = store.current(&tenant(), &project()).await.unwrap();
    let told: Vec<_> = current.iter().map(|kept| (&*kept.agent, kept.version)).collect();
    assert_eq!(told, [("a", 1), ("b", 3)]);
    assert_eq!(&*current[1].hash, "hash of one");
}

/// Issue 3.8: who changes a version that is no longer the current one is told which is.
pub(crate) async fn a_change_of_another_version_than_the_current_one_is_a_conflict(db: TestDb) {
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

/// DESIGN.md 8: of many that change the same version at once, on two processes, one succeeds; nobody's change is lost silently.
pub(crate) async fn of_twenty_changes_at_once_one_is_made(db: TestDb) {
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

/// DESIGN.md 9: another tenant's or project's agents are as ones that do not exist.
pub(crate) async fn another_tenant_s_and_project_s_definitions_are_not_there(db: TestDb) {
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
        assert_eq!(&*current[0].hash, hash);
        assert_eq!(store.versions(tenant, project, "a").await.unwrap(), current);
    }
    assert!(store.current(&other_tenant, &other_project).await.unwrap().is_empty());
}
