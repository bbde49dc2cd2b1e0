//! Complete means shown: a task is complete only if the result of one of its steps has what the model quotes.

use super::super::super::ledger::{Call, Ledger};
use crate::domain::evidence;
use crate::domain::reflection::{Evidence, Reflection};
use crate::domain::tool::FailureCode;

/// Do the results show what the reflection quotes?
///
/// # Errors
/// Why not, for the model.
pub(super) fn shown(ledger: &Ledger<'_>, reflection: &Reflection) -> Result<(), String> {
    if reflection.evidence.is_empty() {
        return Err(
            "a task is complete only with evidence: give the number of a step whose call succeeded, and a quote from its \
             result. If no result shows it, the task is not complete"
                .to_owned(),
        );
    }
    // One call of each step was run: the first of its turn.
    let acts: Vec<_> = ledger
        .of_tools()
        .filter(|call| call.failure_code() != Some(FailureCode::TooManyCalls))
        .collect();
    reflection.evidence.iter().try_for_each(|evidence| one(&acts, evidence))
}

fn one(acts: &[Call<'_>], evidence: &Evidence) -> Result<(), String> {
    let Evidence { observation, quote } = evidence;
    let n = usize::try_from(*observation).unwrap_or(usize::MAX);
    let Some(call) = n.checked_sub(1).and_then(|at| acts.get(at)) else {
        return Err(format!(
            "observation {observation} is no step of this task; it has {} so far",
            acts.len()
        ));
    };
    if call.tool().is_none() {
        return Err(format!(
            "step {observation} called the agent {}, whose answer is the word of a model, so it shows nothing",
            call.name()
        ));
    }
    let Some(data) = call.data() else {
        return Err(format!(
            "the call of step {observation}, {}, did not succeed, so it shows nothing",
            call.name()
        ));
    };
    evidence::check(data.get(), call.arguments().get(), quote, *observation)
}
