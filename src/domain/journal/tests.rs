//! Which entries of older journals are read, and as what.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::domain::policy::DecidedBy;

/// Runs can continue that started before decisions recorded what decided.
#[test]
fn decisions_of_older_journals_are_read() {
    let allow: PolicyDecision = serde_json::from_str(r#"{"allow":{"arguments":{"a":1}}}"#).unwrap();
    assert!(matches!(&allow, PolicyDecision::Allow { arguments, by: None } if arguments.get() == r#"{"a":1}"#));
    assert_eq!(
        serde_json::to_string(&allow).unwrap(),
        r#"{"allow":{"arguments":{"a":1}}}"#
    );
    let ask: PolicyDecision = serde_json::from_str(r#"{"require_approval":{"arguments":{},"reason":"r"}}"#).unwrap();
    assert!(
        matches!(&ask, PolicyDecision::RequireApproval { reason, by, warnings, recipients, .. }
            if reason == "r" && by.is_empty() && warnings.is_empty() && recipients.is_empty())
    );
}

#[test]
fn what_decided_is_kept_in_the_journal() {
    let by = vec![
        DecidedBy::SideEffects,
        DecidedBy::Rule("r".into()),
        DecidedBy::Grant("g".into()),
    ];
    let text = serde_json::to_string(&by).unwrap();
    assert_eq!(text, r#"["side_effects",{"rule":"r"},{"grant":"g"}]"#);
    assert_eq!(serde_json::from_str::<Vec<DecidedBy>>(&text).unwrap(), by);
}
