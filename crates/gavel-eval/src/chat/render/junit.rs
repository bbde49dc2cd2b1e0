//! JUnit XML: one suite per kind, and one for the bystander.

use std::fmt::Write;

use super::no_evidence;
use crate::chat::report::{CaseResult, Report, Verdict};

/// The report as JUnit XML. A case that is not as expected is a failure. A case that was not run, or broke an
/// invariant, is an error. Writing to a String cannot fail, so results of `writeln!` are dropped.
pub fn junit(report: &Report) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let count = |pick: fn(&CaseResult) -> bool| report.cases.iter().filter(|case| pick(case)).count();
    let lost = usize::from(bystander(report).is_some());
    let _ = writeln!(
        out,
        r#"<testsuites name="gavel eval" tests="{}" failures="{}" errors="{}" time="{}">"#,
        report.cases.len() + 1,
        count(failed),
        count(in_error) + lost,
        seconds(report.elapsed_ms),
    );
    for kind in &report.kinds {
        let cases: Vec<_> = report.cases.iter().filter(|case| case.kind == kind.kind).collect();
        let count = |pick: fn(&CaseResult) -> bool| cases.iter().filter(|case| pick(case)).count();
        let time: u64 = cases.iter().filter_map(|case| case.duration_ms).sum();
        let _ = writeln!(
            out,
            r#"  <testsuite name="{}" tests="{}" failures="{}" errors="{}" time="{}">"#,
            escaped(kind.kind),
            cases.len(),
            count(failed),
            count(in_error),
            seconds(time),
        );
        properties(report, &mut out);
        for case in cases {
            testcase(case, &mut out);
        }
        out.push_str("  </testsuite>\n");
    }
    let _ = writeln!(
        out,
        r#"  <testsuite name="bystander" tests="1" failures="0" errors="{lost}" time="0.000">"#
    );
    out.push_str(
        "    <testcase name=\"other users&apos; tasks are unchanged\" classname=\"bystander\" time=\"0.000\">",
    );
    if let Some(breach) = bystander(report) {
        let _ = write!(out, r#"<error message="{}"/>"#, escaped(breach));
    }
    out.push_str("</testcase>\n  </testsuite>\n</testsuites>\n");
    out
}

fn in_error(case: &CaseResult) -> bool {
    !case.ran() || !case.invariants_broken.is_empty()
}

fn failed(case: &CaseResult) -> bool {
    !in_error(case) && !case.succeeded()
}

/// The breach that belongs to no case.
fn bystander(report: &Report) -> Option<&str> {
    let own: usize = report.cases.iter().map(|case| case.invariants_broken.len()).sum();
    report.invariants_broken.get(own).map(String::as_str)
}

fn properties(report: &Report, out: &mut String) {
    let models: Vec<_> = report.models.iter().map(String::as_str).collect();
    let _ = writeln!(
        out,
        r#"    <properties><property name="models" value="{}"/>"#,
        escaped(&models.join(", "))
    );
    if let Some(note) = no_evidence(report) {
        let _ = writeln!(out, r#"      <property name="note" value="{}"/>"#, escaped(note));
    }
    out.push_str("    </properties>\n");
}

fn testcase(case: &CaseResult, out: &mut String) {
    let _ = write!(
        out,
        r#"    <testcase name="{}" classname="{}" file="{}" time="{}">"#,
        escaped(&case.id),
        escaped(&format!("{}.{}", case.kind, case.language)),
        escaped(&case.place),
        seconds(case.duration_ms.unwrap_or(0)),
    );
    let mut detail = format!("message: {}\n", case.message);
    if let Some(response) = &case.response {
        let _ = write!(detail, "reply: {response}\ncalls: {}\n", case.calls.join(", "));
    }
    let differences: &[String] = match &case.verdict {
        Verdict::Failed { differences } => differences,
        Verdict::Succeeded | Verdict::NotRun { .. } => &[],
    };
    for difference in differences {
        let _ = writeln!(detail, "{difference}");
    }
    let element = match &case.verdict {
        Verdict::NotRun { error } => Some(("error", error.as_str())),
        _ if in_error(case) => Some(("error", case.invariants_broken[0].as_str())),
        Verdict::Failed { .. } => Some(("failure", differences.first().map_or("not as expected", String::as_str))),
        Verdict::Succeeded => None,
    };
    if let Some((element, message)) = element {
        let _ = write!(
            out,
            r#"<{element} message="{}">{}</{element}>"#,
            escaped(message),
            escaped(&detail)
        );
    }
    out.push_str("</testcase>\n");
}

fn seconds(ms: u64) -> String {
    format!("{:.3}", ms as f64 / 1000.0)
}

/// Escapes text and attributes. Characters that XML 1.0 cannot contain become U+FFFD; line breaks and tabs are escaped
/// so that an attribute keeps them.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\n' => out.push_str("&#10;"),
            '\r' => out.push_str("&#13;"),
            '\t' => out.push_str("&#9;"),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_in_a_text_can_be_taken_for_markup() {
        assert_eq!(
            escaped("<a b=\"c\">&'\n\0\u{1b}</a>"),
            "&lt;a b=&quot;c&quot;&gt;&amp;&apos;&#10;\u{fffd}\u{fffd}&lt;/a&gt;"
        );
    }

    proptest! {
        #[test]
        fn escaped_text_holds_no_markup_and_no_forbidden_character(text in any::<String>()) {
            let out = escaped(&text);
            prop_assert!(!out.contains(['<', '>', '"', '\'']));
            let allowed = |c: char| c >= ' ' && !matches!(c, '\u{fffe}' | '\u{ffff}');
            prop_assert!(out.chars().all(allowed));
        }
    }
}
