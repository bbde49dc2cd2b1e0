//! What the user wants, as the demo model understands it.

use chrono::NaiveDate;

use super::language::{Act, Place};

/// What the user wants.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Wish {
    /// These steps, in order.
    Steps(Vec<Step>),
    /// A reply in words.
    Talk(Act),
    /// A request to decline.
    Decline(Act),
    /// A thing named without a request.
    Unclear(String),
    /// A pointer with nothing to refer to.
    UnclearPointer,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Add {
        description: String,
        due: Option<NaiveDate>,
        priority: Option<&'static str>,
    },
    List(Filter),
    Complete(Target),
    Delete(Target),
    Change(Target, Patch),
}

/// What to list.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Filter {
    /// `done` or `all`; absent means open tasks.
    pub(super) status: Option<&'static str>,
    /// Days, both exclusive.
    pub(super) after: Option<NaiveDate>,
    pub(super) before: Option<NaiveDate>,
}

/// Which task.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Target {
    Place(Place),
    Words(String),
}

/// What to change.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Patch {
    Description(String),
    Due(NaiveDate),
    Priority(&'static str),
    Notes(String),
}
