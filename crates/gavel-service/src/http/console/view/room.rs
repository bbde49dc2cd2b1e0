//! Limits how much of a call a page shows. The limits count rendered bytes: an invisible character is one character in
//! an argument and up to a hundred bytes on a page.

use maud::{Markup, html};
use serde_json::{Map, Value};

use crate::domain::action::Details;
use crate::domain::address::Recipients;
use crate::http::console::view::words;

/// The room of a card, in rendered bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// For the arguments. They are shown up to three times: formatted, in full, and as JSON.
    arguments: usize,
    /// For what an approver must see: the reason for approval, the warnings and the recipients.
    must_see: usize,
}

impl Room {
    /// Room for what an approver must see, in rendered bytes.
    pub(crate) fn must_see(self) -> usize {
        self.must_see
    }
}

/// For a list of at most forty cards: a page of at most 8 MiB.
pub(crate) const IN_LIST: Room = Room {
    arguments: 32 * 1024,
    must_see: 16 * 1024,
};

/// For a page with one card.
pub(crate) const ALONE: Room = Room {
    arguments: 1024 * 1024,
    must_see: 256 * 1024,
};

/// For other external text, such as a tool's description or an error.
pub(crate) const TEXT: usize = 16 * 1024;

/// Rendered bytes around a value, and for each level of indentation in the JSON.
const AROUND: usize = 160;
const LEVEL: usize = 4;

/// Rendered bytes around an address.
const ADDRESS: usize = 40;

/// Most cuts that are listed, and most characters of each place.
const MOST_CUTS: usize = 10;
const PLACE: usize = 120;

/// Whether everything that an approver must see fits.
pub(crate) fn must_see_fits(details: &Details, room: Room) -> bool {
    let mut left = room.must_see;
    let texts = std::iter::once(&details.reason).chain(&details.warnings);
    texts
        .into_iter()
        .all(|text| take(&mut left, AROUND + words::length(text)))
        && details
            .recipients
            .as_ref()
            .is_none_or(|recipients| take_recipients(&mut left, recipients))
}

/// Whether the recipients fit.
pub(crate) fn recipients_fit(recipients: &Recipients, room: Room) -> bool {
    take_recipients(&mut room.must_see.clone(), recipients)
}

fn take_recipients(left: &mut usize, recipients: &Recipients) -> bool {
    recipients.by_argument().all(|(argument, addresses)| {
        take(left, words::length(argument)) && addresses.iter().all(|one| take(left, ADDRESS + words::length(one)))
    })
}

/// The arguments as far as they fit, and the places where they were cut.
pub(crate) struct Fit {
    pub(crate) arguments: Value,
    pub(crate) cuts: Vec<String>,
}

/// Cuts arguments to the room of a page. Small ones are shown in full, wherever they are: a long text takes no room
/// from them.
pub(crate) fn fit(arguments: &Value, room: Room) -> Fit {
    let mut cutter = Cutter {
        left: room.arguments,
        cuts: Vec::new(),
    };
    let arguments = match arguments {
        Value::Object(fields) => {
            let mut in_order: Vec<_> = fields.iter().collect();
            in_order.sort_by_cached_key(|(_, value)| length(value));
            Value::Object(cutter.fields(in_order.into_iter(), fields.len(), "", 0))
        }
        other => cutter.value(other, "", 0),
    };
    Fit {
        arguments,
        cuts: cutter.cuts,
    }
}

impl Fit {
    /// The notice that not everything is shown; empty if everything is.
    pub(crate) fn note(&self) -> Markup {
        html! {
            @if !self.cuts.is_empty() {
                div.warnings role="note" {
                    p { b { "Not all of the arguments are shown here." } " " code { "gavel approvals list" } " and " code { "GET /api/agent/approvals/pending" } " show all of them." }
                    ul {
                        @for cut in self.cuts.iter().take(MOST_CUTS) { li { (words::text(cut)) } }
                        @if self.cuts.len() > MOST_CUTS { li { (self.cuts.len() - MOST_CUTS) " more places" } }
                    }
                }
            }
        }
    }
}

struct Cutter {
    left: usize,
    cuts: Vec<String>,
}

impl Cutter {
    fn value(&mut self, value: &Value, place: &str, level: usize) -> Value {
        match value {
            Value::String(text) => {
                let (shown, more) = words::cut(text, self.left);
                self.left -= words::length(shown).min(self.left);
                if more > 0 {
                    self.cut(place, more, "character");
                }
                Value::from(shown)
            }
            Value::Array(items) => {
                let mut kept = Vec::new();
                for (n, item) in items.iter().enumerate() {
                    if !take(&mut self.left, AROUND + level * LEVEL) {
                        self.cut(place, items.len() - n, "entry");
                        break;
                    }
                    kept.push(self.value(item, &format!("{place}[{n}]"), level + 1));
                }
                Value::Array(kept)
            }
            Value::Object(fields) => Value::Object(self.fields(fields.iter(), fields.len(), place, level)),
            other => other.clone(),
        }
    }

    fn fields<'a>(
        &mut self,
        fields: impl Iterator<Item = (&'a String, &'a Value)>,
        count: usize,
        place: &str,
        level: usize,
    ) -> Map<String, Value> {
        let mut kept = Map::new();
        for (n, (name, value)) in fields.enumerate() {
            if !take(&mut self.left, AROUND + level * LEVEL + words::length(name)) {
                self.cut(place, count - n, "entry");
                break;
            }
            let inside = if place.is_empty() {
                name.clone()
            } else {
                format!("{place}.{name}")
            };
            kept.insert(name.clone(), self.value(value, &inside, level + 1));
        }
        kept
    }

    fn cut(&mut self, place: &str, more: usize, what: &str) {
        let place: String = match place {
            "" => "All arguments".to_owned(),
            place => place.chars().take(PLACE).collect(),
        };
        let what = match (what, more) {
            ("entry", 1) => "entry".to_owned(),
            ("entry", _) => "entries".to_owned(),
            (what, 1) => what.to_owned(),
            (what, _) => format!("{what}s"),
        };
        self.cuts.push(format!("{place}: {more} more {what}"));
    }
}

fn take(left: &mut usize, bytes: usize) -> bool {
    match left.checked_sub(bytes) {
        Some(less) => {
            *left = less;
            true
        }
        None => false,
    }
}

/// Approximate rendered bytes of a value.
fn length(value: &Value) -> usize {
    match value {
        Value::String(text) => words::length(text),
        Value::Array(items) => items.iter().map(|item| AROUND + length(item)).sum(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| AROUND + words::length(name) + length(value))
            .sum(),
        _ => AROUND,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::arguments::Clock;
    use super::*;
    use crate::domain::ids::ActionId;

    #[test]
    fn what_fits_is_left_alone() {
        let given = json!({"to": ["a@x.org"], "body": "b".repeat(20_000), "n": {"a": [1, null, true]}});
        let fit = fit(&given, IN_LIST);
        assert_eq!(fit.arguments, given);
        assert!(fit.cuts.is_empty() && fit.note().into_string().is_empty());
    }

    #[test]
    fn a_long_text_is_cut_and_takes_nothing_from_the_small_ones() {
        let given = json!({"a": "x".repeat(100_000), "z": "short", "to": ["a@x.org", "b@x.org"]});
        let fit = fit(&given, IN_LIST);
        assert_eq!((&fit.arguments["z"], &fit.arguments["to"]), (&given["z"], &given["to"]));
        let left = fit.arguments["a"].as_str().unwrap().len();
        assert_eq!(fit.cuts, [format!("a: {} more characters", 100_000 - left)]);
        assert!((20_000..33_000).contains(&left), "{left}");
    }

    /// The output is limited for any arguments.
    #[test]
    fn no_arguments_become_more_than_there_is_room_for() {
        let deep = (0..60).fold(json!("x"), |inner, _| json!({"a": inner}));
        for given in [
            json!({"t": "\u{e0041}".repeat(500_000)}),
            json!({"t": "&<>\"".repeat(300_000)}),
            json!({"t": vec![""; 300_000]}),
            json!({"t": vec![json!({}); 300_000]}),
            json!({"t": vec![deep; 10_000]}),
            Value::Object(
                (0..100_000)
                    .map(|n| (format!("\u{202e}{n}"), json!("\u{202e}")))
                    .collect(),
            ),
            json!({"t": (0..100_000).map(|n| format!("a{n}@x.org")).collect::<Vec<_>>()}),
            json!({"t": "x\n".repeat(500_000)}),
        ] {
            let fit = fit(&given, IN_LIST);
            let clock = Clock {
                zone: chrono_tz::Tz::UTC,
                now_us: 0,
            };
            let shown = super::super::arguments::arguments(None, ActionId::new(), &fit.arguments, true, clock)
                .into_string()
                + &super::super::arguments::raw(&fit.arguments).into_string()
                + &fit.note().into_string();
            assert!(
                shown.len() < 4 * IN_LIST.arguments,
                "{}: {}",
                shown.len(),
                &shown[..200]
            );
            assert!(!fit.cuts.is_empty());
        }
    }
}
