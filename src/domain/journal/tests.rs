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

/// Entries of earlier versions had other names; runs that they belong to continue.
#[test]
fn entries_under_their_old_names_are_read() {
    let call = ActionId::new();
    for name in ["decided", "judged"] {
        for field in ["decision", "judgement"] {
            let text = format!(r#"{{"{name}":{{"call":"{call}","{field}":{{"allow":{{"arguments":{{}}}}}}}}}}"#);
            let entry: Entry = serde_json::from_str(&text).unwrap();
            assert!(
                matches!(&entry, Entry::Decided { call: of, .. } if *of == call),
                "{text}"
            );
            assert!(
                serde_json::to_string(&entry)
                    .unwrap()
                    .starts_with(r#"{"decided":{"call":"#)
            );
        }
    }
    for name in ["approval_resolved", "settled"] {
        let text = format!(r#"{{"{name}":{{"call":"{call}","approved":true,"by":"ann","reason":null}}}}"#);
        let entry: Entry = serde_json::from_str(&text).unwrap();
        assert!(
            matches!(&entry, Entry::ApprovalResolved { approved: true, .. }),
            "{text}"
        );
    }
}

/// The texts of older journals say whether the run must end with its output; the mode in force follows.
#[test]
fn prompts_of_older_journals_are_read() {
    let output = CallMode::Any(vec!["complete_task".to_owned()]);
    let limit = Cause::Limit {
        reason: StopReason::TimeLimit,
        elapsed_us: 7,
    };
    let stop =
        |notice: &str| format!(r#"{{"soft_stop":{{"reason":"time_limit","notice":"{notice}","elapsed_us":7}}}}"#);
    for (older, text, mode, cause) in [
        (
            r#"{"notice":"Go on."}"#.to_owned(),
            "Go on.",
            &CallMode::Auto,
            Cause::Resumed,
        ),
        (r#"{"output_due":"Now."}"#.to_owned(), "Now.", &output, Cause::OutputDue),
        (
            stop("Time is up. Sum up."),
            "Time is up. Sum up.",
            &CallMode::None,
            limit,
        ),
        (
            stop("Call complete_task now."),
            "Call complete_task now.",
            &output,
            limit,
        ),
    ] {
        let entry = Entry::read(&older).unwrap();
        let Entry::Prompted {
            text: read,
            mode: read_mode,
            cause: read_cause,
        } = &entry
        else {
            panic!("{older}: {entry:?}");
        };
        assert_eq!((read.as_str(), read_mode, *read_cause), (text, mode, cause), "{older}");
        let again = Entry::read(&serde_json::to_string(&entry).unwrap()).unwrap();
        assert!(
            matches!(&again, Entry::Prompted { mode: again, .. } if again == mode),
            "{again:?}"
        );
    }
    assert!(Entry::read(r#"{"later":1}"#).unwrap_err().to_string().contains("later"));
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
