//! The place of an event in the events of its session.

use std::fmt;

/// The place of an event in the events of its session. It is the same at every process, and after a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventId {
    /// The run: 1, 2, 3 … in the order in which the runs of the session were created.
    pub run: u32,
    /// The position in the log of that run. What follows the run has the position after its last entry.
    pub position: u64,
    /// The events of one position: 0, 1, 2 …
    pub part: u32,
}

impl EventId {
    /// Parses an id; each has one spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let mut next = || parts.next();
        let (run, position, part) = (next()?, next()?, next()?);
        let id = Self {
            run: run.parse().ok()?,
            position: position.parse().ok()?,
            part: part.parse().ok()?,
        };
        (id.run > 0 && id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.run, self.position, self.part)
    }
}

#[cfg(test)]
mod tests {
    use super::EventId;

    #[test]
    fn an_id_has_one_spelling_and_ids_are_ordered() {
        let id = |text: &str| EventId::parse(text).unwrap();
        for text in ["1.0.0", "2.17.1", "10.4294967296.2"] {
            assert_eq!(id(text).to_string(), text);
        }
        for invalid in [
            "", "1", "1.0", "0.0.0", "1.0.0.0", "01.0.0", "1.+1.0", "1.a.0", "-1.0.0", "1..0",
        ] {
            assert_eq!(EventId::parse(invalid), None, "{invalid:?}");
        }
        assert!(id("1.9.0") < id("1.10.0") && id("1.10.0") < id("1.10.1") && id("1.99.9") < id("2.0.0"));
    }
}
