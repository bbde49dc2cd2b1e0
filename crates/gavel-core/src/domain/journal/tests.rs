//! What a journal keeps of an entry.
#![allow(clippy::unwrap_used)]

use crate::domain::policy::DecidedBy;

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
