//! The URLs of an endpoint.

use std::sync::{Arc, Mutex, PoisonError};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

use super::client::MODELS;
use super::config::{ConfigError, invalid};
use crate::ports::metrics::{Counter, MODEL_ANSWERS};

/// The operation on a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Generate,
    Stream,
    CountTokens,
}

impl Method {
    fn suffix(self) -> &'static str {
        match self {
            Self::Generate => ":generateContent",
            Self::Stream => ":streamGenerateContent?alt=sse",
            Self::CountTokens => ":countTokens",
        }
    }
}

/// The part of a URL before the model's name.
#[derive(Clone, Debug)]
pub(super) struct Address {
    models: String,
    pub(super) origin: Url,
}

impl Address {
    pub(super) fn developer(base: &str) -> Result<Self, ConfigError> {
        Ok(Self::at(origin("base_url", base)?, "v1beta/models/"))
    }

    pub(super) fn express(base: &str) -> Result<Self, ConfigError> {
        Ok(Self::at(origin("base_url", base)?, "v1/publishers/google/models/"))
    }

    pub(super) fn vertex(project: &str, location: &str, endpoint: Option<&str>) -> Result<Self, ConfigError> {
        let project = name("project", project)?;
        let location = name("location", location)?;
        let origin = match endpoint {
            Some(given) if given.contains("://") => origin("endpoint", given)?,
            Some(host) => origin("endpoint", &format!("https://{host}"))?,
            None => origin("location", &format!("https://{}", vertex_host(location)))?,
        };
        let path = format!("v1/projects/{project}/locations/{location}/publishers/google/models/");
        Ok(Self::at(origin, &path))
    }

    fn at(origin: Url, path: &str) -> Self {
        Self {
            // An origin ends with a slash when printed.
            models: format!("{origin}{path}"),
            origin,
        }
    }

    /// The URL for `method` of `model`.
    pub(super) fn of(&self, model: &str, method: Method) -> Result<Url, url::ParseError> {
        Url::parse(&format!("{}{}{}", self.models, escaped(model), method.suffix()))
    }

    /// The URL of the description of `model`.
    pub(super) fn about(&self, model: &str) -> Result<Url, url::ParseError> {
        Url::parse(&format!("{}{}", self.models, escaped(model)))
    }
}

fn vertex_host(location: &str) -> String {
    match location {
        "global" => "aiplatform.googleapis.com".to_owned(),
        "us" | "eu" => format!("aiplatform.{location}.rep.googleapis.com"),
        region => format!("{region}-aiplatform.googleapis.com"),
    }
}

fn origin(setting: &str, text: &str) -> Result<Url, ConfigError> {
    let allowed = "allowed is scheme, host and port, as in https://generativelanguage.googleapis.com";
    // The error does not repeat an invalid value, because it may be a misplaced key.
    let url = Url::parse(text.trim()).map_err(|error| invalid(setting, format!("{error}; {allowed}")))?;
    let found = match url.scheme() {
        "http" | "https" => {
            if url.host_str().is_none_or(str::is_empty) {
                Some("it has no host")
            } else if !url.username().is_empty() || url.password().is_some() {
                Some("it holds a user name or password")
            } else if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
                Some("it has a path, a query or a fragment")
            } else {
                None
            }
        }
        _ => Some("its scheme is neither http nor https"),
    };
    match found {
        Some(found) => Err(invalid(setting, format!("{found}; {allowed}"))),
        None => Ok(url),
    }
}

fn name<'a>(setting: &str, value: &'a str) -> Result<&'a str, ConfigError> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    if value.is_empty() || value.len() > 100 || !value.bytes().all(fits) {
        return Err(invalid(setting, "allowed are 1 to 100 letters, digits and - _ . :"));
    }
    Ok(value)
}

/// Characters that a path segment holds as they are.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A name as one path segment.
fn escaped(name: &str) -> impl std::fmt::Display {
    utf8_percent_encode(name, UNRESERVED)
}

/// Names come from definitions: beyond these, the oldest is forgotten, so that memory stays bounded.
const MOST: usize = 256;

/// Requested and answering models, the latest answer last.
#[derive(Default)]
pub(super) struct Routes(Mutex<Vec<Pair>>);

struct Pair {
    requested: Box<str>,
    answered: Arc<str>,
    answers: Counter,
}

impl Routes {
    /// The model that answered for a name last.
    pub(super) fn answering(&self, requested: &str) -> Option<Arc<str>> {
        let pairs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = pairs.iter().rfind(|pair| *pair.requested == *requested)?;
        Some(Arc::clone(&last.answered))
    }

    /// Notes and counts an answer. A new pair of different models is logged once.
    pub(super) fn note(&self, endpoint: &'static str, requested: &str, answered: &str) -> Arc<str> {
        let mut pairs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |pair: &Pair| *pair.requested == *requested && *pair.answered == *answered;
        let pair = if let Some(at) = pairs.iter().rposition(is_it) {
            pairs.remove(at)
        } else {
            if is_other(requested, answered) {
                tracing::warn!(requested, answered, "another model answers than the one that was asked");
            }
            let (asked, by) = (MODELS.of(requested).to_owned(), MODELS.of(answered).to_owned());
            Pair {
                requested: requested.into(),
                answered: answered.into(),
                answers: MODEL_ANSWERS.with([endpoint.into(), asked.into(), by.into()]),
            }
        };
        pair.answers.increment(1);
        let answered = Arc::clone(&pair.answered);
        pairs.push(pair);
        if pairs.len() > MOST {
            pairs.remove(0);
        }
        answered
    }
}

/// Is `answered` another model than `requested`? If only a version or a date follows the requested name, it is the same
/// model.
pub(super) fn is_other(requested: &str, answered: &str) -> bool {
    let is_version = |word: &str| word == "preview" || word == "exp" || word.bytes().all(|b| b.is_ascii_digit());
    match answered.strip_prefix(requested) {
        Some("") => false,
        Some(rest) => !rest
            .strip_prefix('-')
            .is_some_and(|rest| rest.split('-').all(is_version)),
        None => true,
    }
}

#[cfg(test)]
mod routes_tests {
    use super::*;

    #[test]
    fn a_version_of_the_requested_name_is_the_same_model_and_anything_else_is_another() {
        for (requested, answered, other) in [
            ("gemini-3.8-flash", "gemini-3.8-flash", false),
            ("gemini-2.0-flash-lite", "gemini-2.0-flash-lite-001", false),
            ("gemini-2.5-flash", "gemini-2.5-flash-preview-09-2025", false),
            ("gemini-3-pro", "gemini-3-pro-preview", false),
            ("gemini-3.7-flash", "gemini-3.8-flash", true),
            ("gemini-2.5-flash", "gemini-2.5-flash-lite", true),
            ("gemini-2.5-flash", "gemini-2.5-flash-image-preview", true),
            ("gemini-2.5-flash-preview-09-2025", "gemini-2.5-flash", true),
            ("gemini-3.1", "gemini-3.10", true),
            ("gemini-flash-latest", "gemini-3.6-flash", true),
        ] {
            assert_eq!(is_other(requested, answered), other, "{requested} {answered}");
        }
    }

    #[test]
    fn the_latest_answer_counts_and_memory_is_bounded() {
        let routes = Routes::default();
        for answered in ["a", "b", "a"] {
            assert_eq!(&*routes.note("developer", "x", answered), answered);
            assert_eq!(routes.answering("x").as_deref(), Some(answered));
        }
        for n in 0..1000 {
            routes.note("developer", &n.to_string(), "a");
            routes.note("developer", "x", &n.to_string());
        }
        assert_eq!(routes.0.lock().unwrap().len(), MOST);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn each_endpoint_has_its_path_and_each_location_its_host() {
        let url = |address: Address, method| address.of("gemini-3.8-flash", method).unwrap().to_string();
        assert_eq!(
            url(Address::developer("http://127.0.0.1:9/").unwrap(), Method::Generate),
            "http://127.0.0.1:9/v1beta/models/gemini-3.8-flash:generateContent"
        );
        assert_eq!(
            url(Address::express(super::super::EXPRESS_BASE).unwrap(), Method::Stream),
            "https://aiplatform.googleapis.com/v1/publishers/google/models/gemini-3.8-flash:streamGenerateContent?alt=sse"
        );
        for (location, endpoint, host) in [
            ("global", None, "https://aiplatform.googleapis.com"),
            ("us", None, "https://aiplatform.us.rep.googleapis.com"),
            ("eu", None, "https://aiplatform.eu.rep.googleapis.com"),
            ("europe-west4", None, "https://europe-west4-aiplatform.googleapis.com"),
            ("global", Some("vertex.internal:8443"), "https://vertex.internal:8443"),
            ("global", Some("http://localhost:1"), "http://localhost:1"),
        ] {
            assert_eq!(
                url(Address::vertex("p-1", location, endpoint).unwrap(), Method::CountTokens),
                format!(
                    "{host}/v1/projects/p-1/locations/{location}/publishers/google/models/gemini-3.8-flash:countTokens"
                )
            );
        }
    }

    #[test]
    fn a_model_name_cannot_leave_its_segment() {
        let address = Address::developer("http://h").unwrap();
        let url = address.of("../../x?key=1#/y", Method::Generate).unwrap();
        assert_eq!(
            url.as_str(),
            "http://h/v1beta/models/..%2F..%2Fx%3Fkey%3D1%23%2Fy:generateContent"
        );
    }

    #[test]
    fn an_invalid_base_is_refused_with_what_is_allowed_and_is_not_repeated() {
        for base in [
            "",
            "host",
            "ftp://h",
            "http://user:s3cret@h",
            "https://h/s3cret",
            "https://h?key=s3cret",
            "s3cret",
        ] {
            let error = Address::developer(base).unwrap_err().to_string();
            assert!(error.contains("base_url") && error.contains("allowed is"), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
        assert!(Address::vertex("a/b", "global", None).is_err());
        assert!(Address::vertex("a", "", None).is_err());
    }
}
