//! Which model answers for which name. Google routes deprecated names and moving aliases to other models, and says so
//! only in the answer.

use std::sync::{Arc, Mutex, PoisonError};

use metrics::{Counter, counter};

use super::metrics::MODELS;

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
                answers: counter!("gavel_model_answers_total", "endpoint" => endpoint, "requested" => asked, "answered" => by),
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
mod tests {
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
