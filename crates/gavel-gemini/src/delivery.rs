//! What the caller has received so far, so that the output of a failed attempt can be withdrawn.

use crate::domain::journal::Part;
use crate::ports::model::ModelEvent;

type Listener<'a> = &'a mut (dyn FnMut(ModelEvent<'_>) + Send);

/// Delivers text and thoughts to the caller.
pub(super) struct Delivery<'a> {
    listener: Option<Listener<'a>>,
    /// Were thoughts requested? If not, they are not delivered.
    thoughts: bool,
    /// Text and thoughts of completed hops. They remain valid if a later hop fails.
    settled: Vec<Part>,
    /// Has the current hop delivered anything?
    unsettled: bool,
}

impl<'a> Delivery<'a> {
    pub(super) fn new(listener: Option<Listener<'a>>, thoughts: bool) -> Self {
        Self {
            listener,
            thoughts,
            settled: Vec::new(),
            unsettled: false,
        }
    }

    /// Is there a listener?
    pub(super) fn has_listener(&self) -> bool {
        self.listener.is_some()
    }

    /// Delivers text or thoughts.
    pub(super) fn tell(&mut self, event: ModelEvent<'_>) {
        let is_asked_for = self.thoughts || !matches!(event, ModelEvent::Thought(_));
        if let Some(listener) = &mut self.listener
            && is_asked_for
        {
            self.unsettled = true;
            listener(event);
        }
    }

    /// The attempt failed and another follows. If it delivered anything, the caller is reset and receives the completed
    /// hops again.
    pub(super) fn take_back(&mut self) {
        if let Some(listener) = &mut self.listener
            && std::mem::take(&mut self.unsettled)
        {
            listener(ModelEvent::Reset);
            for part in &self.settled {
                match part {
                    Part::Text(words) => listener(ModelEvent::Delta(words)),
                    Part::Thought(text) if self.thoughts => listener(ModelEvent::Thought(text)),
                    Part::Thought(_) | Part::Call(_) | Part::Other => {}
                }
            }
        }
    }

    /// The hop is complete and another follows.
    pub(super) fn settle<'p>(&mut self, parts: impl Iterator<Item = &'p Part>) {
        self.unsettled = false;
        let said = parts.filter(|part| matches!(part, Part::Text(text) | Part::Thought(text) if !text.is_empty()));
        self.settled.extend(said.cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_delivered_text_is_withdrawn_and_finished_hops_are_delivered_again() {
        let mut received = Vec::new();
        let mut listener = |event: ModelEvent<'_>| received.push(format!("{event:?}"));
        let mut delivery = Delivery::new(Some(&mut listener), true);
        delivery.take_back();
        delivery.tell(ModelEvent::Delta("a"));
        delivery.take_back();
        delivery.tell(ModelEvent::Thought("hm"));
        delivery.take_back();
        delivery.tell(ModelEvent::Thought("Hm"));
        delivery.tell(ModelEvent::Delta("A"));
        let parts = [Part::Thought("Hm".to_owned()), Part::Text("A".to_owned())];
        delivery.settle(parts.iter());
        delivery.take_back();
        delivery.tell(ModelEvent::Delta("b"));
        delivery.take_back();
        assert_eq!(
            received,
            [
                r#"Delta("a")"#,
                "Reset",
                r#"Thought("hm")"#,
                "Reset",
                r#"Thought("Hm")"#,
                r#"Delta("A")"#,
                r#"Delta("b")"#,
                "Reset",
                r#"Thought("Hm")"#,
                r#"Delta("A")"#
            ]
        );
    }

    #[test]
    fn thoughts_that_were_not_asked_for_are_not_passed_on() {
        let mut received = Vec::new();
        let mut listener = |event: ModelEvent<'_>| received.push(format!("{event:?}"));
        let mut delivery = Delivery::new(Some(&mut listener), false);
        delivery.tell(ModelEvent::Thought("hm"));
        delivery.take_back();
        delivery.settle([Part::Thought("hm".to_owned())].iter());
        delivery.tell(ModelEvent::Delta("a"));
        delivery.take_back();
        assert_eq!(received, [r#"Delta("a")"#, "Reset"]);
    }
}
