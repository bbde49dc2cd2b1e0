//! Query parameters of lists: `page_size`, `page_token`, `filter`, `order_by`, as the route spells them.

use std::borrow::Cow;
use std::str::FromStr;

use serde_json::Value;
use utoipa::openapi::path::ParameterBuilder;
use utoipa::openapi::{KnownFormat, SchemaFormat};

use crate::api::problem::FieldError;
use crate::domain::definition::quoted;
use crate::domain::time::Timestamp;
use crate::http::error::Error;
use crate::http::openapi::{in_query, string, whole};
use crate::http::spelling::Spelling;

/// Default number of rows of a page.
pub(super) const DEFAULT_PAGE: u32 = 50;
/// Most rows of a page.
pub(super) const MAX_PAGE: u32 = 1000;

/// What a route takes of its query. It is read of each request, and once for the API description.
pub(super) trait Parameters: Sized {
    fn read(fields: &mut Fields<'_>) -> Self;
}

/// A query as its parameters are read. All errors are reported at once.
pub(super) struct Fields<'a> {
    pub(super) spelling: Spelling,
    given: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    known: Vec<String>,
    errors: Vec<FieldError>,
    /// Present while the API description is made.
    described: Option<Vec<ParameterBuilder>>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(spelling: Spelling, query: &'a str) -> Self {
        let (mut given, mut errors) = (Vec::<(Cow<'_, str>, Cow<'_, str>)>::new(), Vec::new());
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            if given.iter().any(|(before, _)| *before == name) {
                errors.push(FieldError::new(name, "is given more than once"));
                continue;
            }
            if value.contains('\0') {
                let detail = "contains a NUL character, which is not allowed";
                errors.push(FieldError::new(name.clone(), detail));
            }
            given.push((name, value));
        }
        Self {
            spelling,
            given,
            known: Vec::new(),
            errors,
            described: None,
        }
    }

    /// The descriptions of what is read.
    pub(super) fn describe<T: Parameters>(spelling: Spelling) -> Vec<ParameterBuilder> {
        let mut fields = Fields {
            described: Some(Vec::new()),
            ..Fields::new(spelling, "")
        };
        T::read(&mut fields);
        fields.described.unwrap_or_default()
    }

    /// A parameter, if it is given; `allowed` says what `parse` accepts.
    pub(super) fn take<T>(
        &mut self,
        name: &str,
        about: impl FnOnce() -> ParameterBuilder,
        allowed: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let name = self.spelling.name(name);
        if let Some(described) = &mut self.described {
            described.push(about().name(&name));
        }
        let at = self.given.iter().position(|(given, _)| *given == name);
        self.known.push(name.clone());
        let (_, value) = self.given.remove(at?);
        let parsed = parse(&value);
        if parsed.is_none() {
            self.errors.push(FieldError::new(name, found(&value, allowed)));
        }
        parsed
    }

    /// A text; an empty one counts as absent.
    pub(super) fn text(&mut self, name: &str, about: &str) -> Option<String> {
        self.text_of(name, || in_query(about, string()))
    }

    /// A text with a description of its own.
    pub(super) fn text_of(&mut self, name: &str, about: impl FnOnce() -> ParameterBuilder) -> Option<String> {
        let text = self.take(name, about, "", |text| Some(text.to_owned()));
        text.filter(|text| !text.is_empty())
    }

    /// Texts, separated by commas.
    pub(super) fn texts(&mut self, name: &str, about: &str) -> Option<Vec<String>> {
        let texts = self.text(name, about)?;
        let texts = texts.split(',').map(|text| text.trim().to_owned());
        Some(texts.filter(|text| !text.is_empty()).collect())
    }

    /// One of these names.
    pub(super) fn name<T: Copy>(&mut self, name: &str, about: &str, names: &[(&'static str, T)]) -> Option<T> {
        let words = || names.iter().map(|(word, _)| *word);
        let about = || in_query(about, string().enum_values(Some(words())));
        let allowed = words().collect::<Vec<_>>().join(", ");
        let parse = |text: &str| names.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        self.take(name, about, &allowed, parse)
    }

    /// Whether something is asked for.
    pub(super) fn flag(&mut self, name: &str, about: &str) -> bool {
        let names = [("true", true), ("false", false), ("1", true), ("0", false)];
        self.name(name, about, &names).unwrap_or_default()
    }

    /// A time.
    pub(super) fn time(&mut self, name: &str, about: &str) -> Option<Timestamp> {
        let format = SchemaFormat::KnownFormat(KnownFormat::DateTime);
        let about = || in_query(about, string().format(Some(format)));
        self.take(name, about, "a time such as 2026-11-20T00:00:00Z", Timestamp::parse)
    }

    /// A whole number from 1 to the most.
    pub(super) fn up_to(&mut self, name: &str, about: &str, most: u32, default: Option<u32>) -> Option<u32> {
        let numbers = || whole(1).maximum(Some(most)).default(default.map(Value::from));
        let parse = |text: &str| number(text).filter(|number| (1..=most).contains(number));
        let allowed = format!("a whole number from 1 to {most}");
        self.take(name, || in_query(about, numbers()), &allowed, parse)
    }

    /// Rejects all other parameters: a misspelt one would otherwise be ignored silently.
    ///
    /// # Errors
    /// Names each invalid parameter.
    pub(super) fn end(mut self) -> Result<(), Error> {
        let allowed = match self.known.is_empty() {
            true => "this route has none".to_owned(),
            false => format!("allowed: {}", self.known.join(", ")),
        };
        let unknown = |(name, _)| FieldError::new(name, format!("is not a known parameter; {allowed}"));
        self.errors.extend(self.given.into_iter().map(unknown));
        if self.errors.is_empty() {
            Ok(())
        } else {
            Err(self.errors.into())
        }
    }
}

/// Rejects all parameters, for routes without any.
///
/// # Errors
/// Names each given parameter.
pub(super) fn none(query: &str) -> Result<(), Error> {
    Fields::new(Spelling::Snake, query).end()
}

/// The value of a parameter that a browser sends. One that is repeated counts as absent: a proxy and gavel could read
/// different values.
pub(super) fn once<'a>(query: &'a str, name: &str) -> Option<Cow<'a, str>> {
    let values = url::form_urlencoded::parse(query.as_bytes()).filter(|(given, _)| given == name);
    single(values).map(|(_, value)| value)
}

/// The only one of these values.
pub(super) fn single<T>(mut values: impl Iterator<Item = T>) -> Option<T> {
    values.next().filter(|_| values.next().is_none())
}

/// Parses the token of a page whose rows are numbered: the number of the last row before it.
///
/// # Errors
/// The token is not from such a list.
pub(super) fn after(token: Option<&str>) -> Result<u32, Error> {
    let Some(token) = token else { return Ok(0) };
    number(token).ok_or_else(|| Error::invalid("pageToken", found(token, "nextPageToken of the previous page")))
}

/// The error text for a value that is not allowed.
pub(super) fn found(value: &str, allowed: &str) -> String {
    format!("is {}; allowed: {allowed}", quoted(value))
}

/// Parses 1, 2, 3 …; other spellings of a number are rejected.
pub(super) fn ordinal<T: FromStr>(text: &str) -> Option<T> {
    number(text).filter(|_| !text.starts_with('0'))
}

/// Parses a whole number of digits, without a sign.
pub(super) fn number<T: FromStr>(text: &str) -> Option<T> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::decisions::DecisionPage;
    use crate::http::request::List;
    use crate::surfaces::decisions::ListQuery;

    fn list(query: &str) -> Result<ListQuery, Error> {
        let mut fields = Fields::new(Spelling::Snake, query);
        let List(list, _) = List::<DecisionPage>::read(&mut fields);
        fields.end().map(|()| list)
    }

    fn pointers(query: &str) -> Vec<String> {
        match list(query) {
            Err(error) => error
                .problem
                .into_more()
                .errors
                .into_iter()
                .map(|error| error.pointer)
                .collect(),
            other => panic!("{query}: {other:?}"),
        }
    }

    #[test]
    fn what_is_given_is_read_and_what_is_not_has_defaults() {
        assert_eq!(
            list("").unwrap(),
            ListQuery {
                page_size: 50,
                ..ListQuery::default()
            }
        );
        let read = list("page_size=7&page_token=abc&filter=intent%20%3D%20%22a+b%22&order_by=created_at").unwrap();
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
        assert_eq!(pointers("colour=1&page_size=0"), ["page_size", "colour"]);
        assert_eq!(pointers("filter=a&filter=b"), ["filter"]);
        assert_eq!(pointers("page_token=%00"), ["page_token"]);
        assert_eq!(pointers("user=ann"), ["user"]);
        assert!(none("").is_ok());
        assert!(none("x=1").is_err());
    }
}
