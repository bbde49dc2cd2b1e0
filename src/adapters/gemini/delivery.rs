//! What the caller has heard so far, so that a broken attempt can be taken back.

use crate::ports::model::ModelEvent;

type Listener<'a> = &'a mut (dyn FnMut(ModelEvent<'_>) + Send);

/// The way of words to the caller.
pub(super) struct Delivery<'a> {
    listener: Option<Listener<'a>>,
    /// Words of hops that are finished: they stay true when a later hop breaks.
    settled: String,
    /// Has the hop at hand said anything?
    unsettled: bool,
}

impl<'a> Delivery<'a> {
    pub(super) fn new(listener: Option<Listener<'a>>) -> Self {
        Self {
            listener,
            settled: String::new(),
            unsettled: false,
        }
    }

    /// Does anybody listen?
    pub(super) fn is_heard(&self) -> bool {
        self.listener.is_some()
    }

    /// Passes words on.
    pub(super) fn delta(&mut self, words: &str) {
        if let Some(listener) = &mut self.listener {
            self.unsettled = true;
            listener(ModelEvent::Delta(words));
        }
    }

    /// The attempt broke and another begins: if it has said anything, all is void, and what stays true is said again.
    pub(super) fn take_back(&mut self) {
        if let Some(listener) = &mut self.listener
            && std::mem::take(&mut self.unsettled)
        {
            listener(ModelEvent::Reset);
            if !self.settled.is_empty() {
                listener(ModelEvent::Delta(&self.settled));
            }
        }
    }

    /// The hop is finished, another follows.
    pub(super) fn settle(&mut self, words: &str) {
        self.unsettled = false;
        self.settled.push_str(words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_heard_is_taken_back_and_finished_hops_are_said_again() {
        let mut heard = Vec::new();
        let mut listener = |event: ModelEvent<'_>| heard.push(format!("{event:?}"));
        let mut delivery = Delivery::new(Some(&mut listener));
        delivery.take_back();
        delivery.delta("a");
        delivery.take_back();
        delivery.delta("A");
        delivery.settle("A");
        delivery.take_back();
        delivery.delta("b");
        delivery.take_back();
        assert_eq!(
            heard,
            [
                r#"Delta("a")"#,
                "Reset",
                r#"Delta("A")"#,
                r#"Delta("b")"#,
                "Reset",
                r#"Delta("A")"#
            ]
        );
    }
}
