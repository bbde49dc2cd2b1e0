//! What the caller has heard so far, so that a broken attempt can be taken back.

use crate::domain::journal::Part;
use crate::ports::model::ModelEvent;

type Listener<'a> = &'a mut (dyn FnMut(ModelEvent<'_>) + Send);

/// The way of words and thoughts to the caller.
pub(super) struct Delivery<'a> {
    listener: Option<Listener<'a>>,
    /// Were thoughts asked for? Else those that come all the same are not passed on.
    thoughts: bool,
    /// Words and thoughts of hops that are finished: they stay true when a later hop breaks.
    settled: Vec<Part>,
    /// Has the hop at hand said anything?
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

    /// Does anybody listen?
    pub(super) fn is_heard(&self) -> bool {
        self.listener.is_some()
    }

    /// Passes words or thoughts on.
    pub(super) fn tell(&mut self, event: ModelEvent<'_>) {
        let is_asked_for = self.thoughts || !matches!(event, ModelEvent::Thought(_));
        if let Some(listener) = &mut self.listener
            && is_asked_for
        {
            self.unsettled = true;
            listener(event);
        }
    }

    /// The attempt broke and another begins: if it has said anything, all is void, and what stays true is said again.
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

    /// The hop is finished, another follows.
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
    fn only_what_was_heard_is_taken_back_and_finished_hops_are_said_again() {
        let mut heard = Vec::new();
        let mut listener = |event: ModelEvent<'_>| heard.push(format!("{event:?}"));
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
            heard,
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
        let mut heard = Vec::new();
        let mut listener = |event: ModelEvent<'_>| heard.push(format!("{event:?}"));
        let mut delivery = Delivery::new(Some(&mut listener), false);
        delivery.tell(ModelEvent::Thought("hm"));
        delivery.take_back();
        delivery.settle([Part::Thought("hm".to_owned())].iter());
        delivery.tell(ModelEvent::Delta("a"));
        delivery.take_back();
        assert_eq!(heard, [r#"Delta("a")"#, "Reset"]);
    }
}
