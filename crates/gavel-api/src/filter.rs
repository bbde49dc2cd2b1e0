//! The fields that a list can be filtered by: one table beside the type of its page, from which the API description, the
//! help of commands and the conditions of the store follow.

use crate::domain::names::{Shape, Shaped};

/// A field of a filter, and what it is compared with.
pub struct Filter(pub &'static str, pub Kind);

/// What a filter compares a field with.
#[derive(Clone, Copy)]
pub enum Kind {
    /// Any quoted string.
    Text,
    /// A quoted string from a closed list.
    Names(fn() -> Vec<&'static str>),
    /// An integer without quotes.
    Number,
    /// An integer in milliseconds, without quotes.
    Duration,
    /// A quoted RFC 3339 time.
    Time,
    /// `true` or `false`, without quotes.
    Bool,
    /// The same, of whether a call succeeded.
    Success,
}

/// Every name of a closed list.
pub fn names<T: Shaped>() -> Vec<&'static str> {
    match T::shape() {
        Shape::Names(_, names) => names,
        _ => Vec::new(),
    }
}

/// A page of a list with a filter and an order.
pub trait Listed {
    /// The fields of its filter.
    const FILTERS: &'static [Filter];
    /// An example of a filter.
    const EXAMPLE: &'static str;
    /// Its orders.
    const ORDER: &'static str = "`created_at desc` (the default) or `created_at`.";

    /// The names of its fields.
    fn fields() -> String {
        let names: Vec<_> = Self::FILTERS.iter().map(|Filter(name, _)| *name).collect();
        names.join(", ")
    }
}

/// The orders of a list whose oldest row is first.
pub(super) const OLDEST_FIRST: &str = "`created_at` (the default) or `created_at desc`.";
