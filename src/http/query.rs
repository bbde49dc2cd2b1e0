//! Query parameters of lists: `page_size`, `page_token`, `filter`, `order_by`, as the route spells them.

use std::borrow::Cow;
use std::str::FromStr;

use super::error::Error;
use super::spelling::Spelling;
use crate::domain::definition::quoted;
use crate::surfaces::decisions::ListQuery;
use crate::surfaces::request::FieldError;

/// Default number of rows of a page.
pub(super) const DEFAULT_PAGE: u32 = 50;
/// Most rows of a page.
pub(super) const MAX_PAGE: u32 = 1000;

/// Parses the parameters of a list.
///
/// # Errors
/// All invalid parameters; `pointer` is the parameter's name.
pub(super) fn list(spelling: Spelling, query: &str) -> Result<ListQuery, Error> {
    let paging = [spelling.page_size(), spelling.page_token()];
    read(spelling, query, &[paging[0], paging[1], "filter", spelling.order_by()])
}

/// Parses the parameters of a paged list without filter and order.
///
/// # Errors
/// As [`list`].
pub(super) fn page(spelling: Spelling, query: &str) -> Result<ListQuery, Error> {
    read(spelling, query, &[spelling.page_size(), spelling.page_token()])
}

fn read(spelling: Spelling, query: &str, allowed: &[&str]) -> Result<ListQuery, Error> {
    let mut list = ListQuery {
        page_size: DEFAULT_PAGE,
        ..ListQuery::default()
    };
    let mut errors = Vec::new();
    let mut seen: Vec<Cow<'_, str>> = Vec::new();
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        let mut invalid = |detail: String| {
            errors.push(FieldError {
                pointer: name.clone().into_owned(),
                detail,
            })
        };
        if seen.contains(&name) {
            invalid("is given more than once".to_owned());
            continue;
        }
        if value.contains('\0') {
            invalid("contains a NUL character, which is not allowed".to_owned());
        }
        match &*name {
            other if !allowed.contains(&other) => {
                invalid(format!("is not a known parameter; allowed are {}", allowed.join(", ")));
            }
            name if name == spelling.page_size() => match page_size(&value) {
                Some(size) => list.page_size = size,
                None => invalid(found(&value, &format!("a whole number from 1 to {MAX_PAGE}"))),
            },
            name if name == spelling.page_token() => list.page_token = given(value),
            "filter" => list.filter = given(value),
            _ => list.order_by = given(value),
        }
        seen.push(name);
    }
    if errors.is_empty() {
        Ok(list)
    } else {
        Err(Error::Invalid(errors))
    }
}

/// Rejects all parameters, for routes without any: a misspelt one would otherwise be ignored silently.
///
/// # Errors
/// Names each given parameter.
pub(super) fn none(query: &str) -> Result<(), Error> {
    let names = url::form_urlencoded::parse(query.as_bytes()).map(|(name, _)| FieldError {
        pointer: name.into_owned(),
        detail: "is not a known parameter; this route has none".to_owned(),
    });
    let errors: Vec<_> = names.collect();
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Error::Invalid(errors))
    }
}

/// Parses the token of a page whose rows are numbered: the number of the last row before it.
///
/// # Errors
/// The token is not from such a list.
pub(super) fn after(token: Option<&str>) -> Result<u32, Error> {
    let Some(token) = token else { return Ok(0) };
    number(token).ok_or_else(|| no_such("pageToken", token, "nextPageToken of the previous page"))
}

fn page_size(text: &str) -> Option<u32> {
    number(text).filter(|size| (1..=MAX_PAGE).contains(size))
}

/// The error for an invalid parameter.
pub(super) fn invalid(name: &str, detail: String) -> Error {
    Error::Invalid(vec![FieldError {
        pointer: name.to_owned(),
        detail,
    }])
}

/// The error for a value that is not allowed.
pub(super) fn no_such(name: &str, value: &str, allowed: &str) -> Error {
    invalid(name, found(value, allowed))
}

/// The error text for a value that is not allowed.
pub(super) fn found(value: &str, allowed: &str) -> String {
    format!("is {}; allowed: {allowed}", quoted(value))
}

/// Parses a whole number of digits, without a sign.
pub(super) fn number<T: FromStr>(text: &str) -> Option<T> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// Treats an empty parameter as absent.
fn given(value: Cow<'_, str>) -> Option<String> {
    (!value.is_empty()).then(|| value.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointers(query: &str) -> Vec<String> {
        match list(Spelling::Snake, query) {
            Err(Error::Invalid(errors)) => errors.into_iter().map(|error| error.pointer).collect(),
            other => panic!("{query}: {other:?}"),
        }
    }

    #[test]
    fn what_is_given_is_read_and_what_is_not_has_defaults() {
        assert_eq!(
            list(Spelling::Snake, "").unwrap(),
            ListQuery {
                page_size: 50,
                ..ListQuery::default()
            }
        );
        let read = list(
            Spelling::Snake,
            "page_size=7&page_token=abc&filter=intent%20%3D%20%22a+b%22&order_by=created_at",
        )
        .unwrap();
        assert_eq!(read.page_size, 7);
        assert_eq!(read.page_token.as_deref(), Some("abc"));
        assert_eq!(read.filter.as_deref(), Some("intent = \"a b\""));
        assert_eq!(read.order_by.as_deref(), Some("created_at"));
        assert_eq!(read.user, None, "no parameter widens a caller's own view");
    }

    #[test]
    fn each_invalid_parameter_is_named() {
        for size in ["0", "1001", "-1", "+5", "1.5", "x", "", "99999999999999999999"] {
            assert_eq!(pointers(&format!("page_size={size}")), ["page_size"], "{size}");
        }
        assert_eq!(pointers("colour=1&page_size=0"), ["colour", "page_size"]);
        assert_eq!(pointers("filter=a&filter=b"), ["filter"]);
        assert_eq!(pointers("page_token=%00"), ["page_token"]);
        assert_eq!(pointers("user=ann"), ["user"]);
        assert!(none("").is_ok());
        assert!(none("x=1").is_err());
    }
}
