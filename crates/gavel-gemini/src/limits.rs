//! Limits for model answers: the arguments of one answer's calls, and the memory of all answers being read at the same
//! time.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use super::failure::Failure;
use crate::domain::budget::{Budget, Exceeded, Held, Pool};
use crate::domain::journal::Part;
use crate::domain::nesting;

/// Number of copies of an answer in memory: the received bytes, and the parsed content.
const COPIES: usize = 2;
/// Maximum argument bytes of one answer's calls. A model writes at most a fifth of this.
const MOST_ARGUMENTS: usize = 1024 * 1024;
/// Maximum values in the arguments of one call, including field names.
const MOST_VALUES: usize = 65_536;

static ANSWERS: LazyLock<Arc<Budget>> = LazyLock::new(|| Budget::new(Pool::ModelAnswers, Pool::ModelAnswers.limits(0)));

/// For an answer to this user of this tenant.
pub(super) fn held<'a>((tenant, user): (&'a str, &'a str)) -> Held<'a> {
    Held::new(Cow::Borrowed(&*ANSWERS), tenant, user, COPIES)
}

/// The answer is not read any further.
pub(super) fn no_room(exceeded: Exceeded) -> Failure {
    Failure::unavailable(format!("gavel is reading too many large model answers: {exceeded}"))
}

/// Checks that the arguments of its calls are small enough to process without starving other requests.
///
/// # Errors
/// They exceed a limit. Nothing of the answer is executed.
pub(super) fn check(parts: &[Part]) -> Result<(), Failure> {
    let calls = parts.iter().filter_map(|part| match part {
        Part::Call(call) => Some(call.args.get().as_bytes()),
        Part::Text(_) | Part::Thought(_) | Part::Other => None,
    });
    let mut bytes = 0;
    for arguments in calls {
        bytes += arguments.len();
        if bytes > MOST_ARGUMENTS {
            let why = format!("the arguments of its calls have more than {MOST_ARGUMENTS} bytes");
            return Err(Failure::malformed(why));
        }
        if nesting::has_more(arguments, MOST_VALUES) {
            let why = format!("the arguments of a call have more than {MOST_VALUES} values and names");
            return Err(Failure::malformed(why));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::domain::journal::FunctionCall;

    /// Promise: bounded faults.
    #[test]
    fn calls_with_arguments_beyond_their_limits_are_not_run() {
        let call = |arguments: String| {
            Part::Call(FunctionCall {
                id: None,
                name: "f".to_owned(),
                args: serde_json::value::RawValue::from_string(arguments).unwrap(),
            })
        };
        let text = |bytes: usize| call(format!("{{\"x\":\"{}\"}}", "x".repeat(bytes)));
        let values = |many: usize| call(format!("{{\"x\":[{}1]}}", "1,".repeat(many)));
        for (parts, reported) in [
            (vec![text(1_000_000)], None),
            (vec![values(60_000)], None),
            (vec![Part::Text("x".repeat(2_000_000))], None),
            (vec![text(1_100_000)], Some("1048576 bytes")),
            (vec![text(600_000), text(600_000)], Some("1048576 bytes")),
            (vec![values(70_000)], Some("65536 values")),
        ] {
            let checked = check(&parts).map_err(|failure| failure.detail);
            match reported {
                None => assert_eq!(checked, Ok(())),
                Some(reported) => assert!(checked.unwrap_err().contains(reported)),
            }
        }
    }
}
