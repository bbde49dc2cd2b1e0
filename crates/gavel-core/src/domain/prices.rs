//! What models cost: the table of prices, and the cost of a model call. Amounts are whole billionths, so that sums are
//! exact; a cost is rounded once, at its end.

use std::fmt;

use chrono::{DateTime, NaiveDate};
use gavel_reading::{At, ByText, Entries, Fields, Node, ReadError, Scalar, WORDS, read_file, record};
use serde::{Serialize, Serializer};

use super::decision::Usage;
use super::journal::Served;

/// A number that is not negative, in billionths: a price in dollars, a cost, or a factor. Shown as a decimal number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal(pub u64);

impl Decimal {
    const ONE: u64 = 1_000_000_000;
    /// No larger one is read. It has no more digits than a number of TOML keeps.
    const MOST: u64 = 100_000 * Self::ONE;

    fn parse(text: &str) -> Option<Self> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(part) || part.len() > 9 {
            return None;
        }
        let whole = whole.parse::<u64>().ok()?.checked_mul(Self::ONE)?;
        let all = whole.checked_add(format!("{part:0<9}").parse().ok()?)?;
        (all <= Self::MOST).then_some(Self(all))
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / Self::ONE, self.0 % Self::ONE);
        match part {
            0 => write!(f, "{whole}"),
            _ => write!(f, "{whole}.{}", format!("{part:09}").trim_end_matches('0')),
        }
    }
}

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

const AMOUNT: ByText<Decimal> = ByText {
    allowed: "a number from 0 to 100000 with at most 9 decimals, such as 1.5",
    read: Decimal::parse,
};

const DATE: ByText<NaiveDate> = ByText {
    allowed: "a date such as 2026-11-30",
    read: |text| NaiveDate::parse_from_str(text, "%Y-%m-%d").ok(),
};

const MODEL: Scalar<String> = Scalar {
    allowed: "the name of a model, such as gemini-4-neon",
    read: |node| {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
        (WORDS.read)(node).filter(|name| name.len() <= 200 && name.chars().all(is_of_name))
    },
};

/// The most rows of a list.
const MOST_ROWS: usize = 10_000;

record! {
    /// What 1,000,000 tokens of a model cost in a time, in US dollars.
    #[derive(Clone, Debug, Serialize)]
    pub struct ModelPrice {
        /// The model, as the provider names it in its answers.
        model: String = "model": MODEL, required;
        /// The first day (UTC).
        valid_from: NaiveDate = "valid_from": DATE, required;
        /// The last day (UTC); `None`: there is no end yet.
        valid_to: Option<NaiveDate> = "valid_to": DATE;
        /// Of input that came from no cache.
        input: Decimal = "input": AMOUNT, required;
        /// Of input that came from a cache; `None`: not known.
        cached: Option<Decimal> = "cached": AMOUNT;
        /// Of output and thoughts.
        output: Decimal = "output": AMOUNT, required;
    }
}

record! {
    /// What 1,000 requests cost beside their tokens, in US dollars.
    #[derive(Clone, Debug, Serialize)]
    pub struct RequestPrice {
        /// What is used in them.
        name: String = "name": WORDS, required;
        /// The first day (UTC).
        valid_from: NaiveDate = "valid_from": DATE, required;
        /// The last day (UTC); `None`: there is no end yet.
        valid_to: Option<NaiveDate> = "valid_to": DATE;
        /// The price.
        per_thousand: Decimal = "per_thousand": AMOUNT, required;
    }
}

/// The name of a price, its first day and its last one.
type Time<'a> = (&'a str, NaiveDate, NaiveDate);

impl RequestPrice {
    fn time(&self) -> Time<'_> {
        (&self.name, self.valid_from, self.valid_to.unwrap_or(NaiveDate::MAX))
    }
}

/// A table of prices.
#[derive(Clone, Debug, Default)]
pub struct Prices {
    /// Of models.
    pub models: Vec<ModelPrice>,
    /// The factor of each service tier.
    pub tiers: Vec<(String, Decimal)>,
    /// Of requests.
    pub requests: Vec<RequestPrice>,
}

/// The cost of a model call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// In billionths of a dollar.
    pub nano: u64,
    /// The price: `MODEL@VALID_FROM:INPUT/CACHED/OUTPUT`, and `xFACTOR` of a tier. It says the figures themselves, since
    /// tables change.
    pub price_id: String,
}

impl Prices {
    /// The table that is compiled into the binary.
    pub const BUILT_IN: &'static str = include_str!("../../../../prices.toml");

    /// Reads a table; `file` names it in errors.
    ///
    /// # Errors
    /// All errors in it, each with its line and field.
    pub fn read(text: &str, file: &str) -> Result<Self, Vec<ReadError>> {
        let parsed = Node::parse_toml(text).map(|node| (node, Vec::new()));
        read_file(file, "TOML", parsed, |at| {
            at.record(|fields| {
                Some(Self {
                    models: dated(fields.get("models"), ModelPrice::read, ModelPrice::time),
                    tiers: fields.take("tiers", Entries(AMOUNT)).unwrap_or_default(),
                    requests: dated(fields.get("requests"), RequestPrice::read, RequestPrice::time),
                })
            })
        })
    }

    /// This table, and of another one what this one does not have: rows of other models, tiers and requests.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        fn add<T>(to: &mut Vec<T>, other: Vec<T>, name: fn(&T) -> &str) {
            let own: Vec<_> = to.iter().map(|row| name(row).to_owned()).collect();
            to.extend(other.into_iter().filter(|row| !own.iter().any(|own| own == name(row))));
        }
        add(&mut self.models, other.models, |row| row.time().0);
        add(&mut self.tiers, other.tiers, |(name, _)| name);
        add(&mut self.requests, other.requests, |row| row.time().0);
        self
    }

    /// The price of a model on a day.
    pub fn on(&self, model: &str, day: NaiveDate) -> Option<&ModelPrice> {
        self.models.iter().find(|row| {
            let (name, from, to) = row.time();
            name == model && (from..=to).contains(&day)
        })
    }

    /// What a model call costs, by the model that answered and the day on which it was asked. `None`: that is not known,
    /// because the answer names no model and counts no tokens, or the table lacks the model, the day, the tier or the price
    /// of cached tokens.
    pub fn cost(&self, served: &Served, usage: &Usage) -> Option<Cost> {
        let day = DateTime::from_timestamp_micros(served.started_at)?.date_naive();
        let price = self.on(served.model.as_deref()?, day)?;
        let factor = match &served.service_tier {
            Some(tier) => self.tiers.iter().find(|(name, _)| name.eq_ignore_ascii_case(tier))?.1,
            None => Decimal(Decimal::ONE),
        };
        if usage.total() == 0 {
            return None;
        }
        // Cached tokens are input tokens, and cost once.
        let cached = usage.cached_tokens.min(usage.input_tokens);
        let cached_price = match cached {
            0 => 0,
            _ => price.cached?.0,
        };
        let part = |tokens: u64, price: u64| u128::from(tokens) * u128::from(price);
        let output = [usage.output_tokens, usage.thought_tokens].map(|tokens| part(tokens, price.output.0));
        let all = part(usage.input_tokens - cached, price.input.0) + part(cached, cached_price) + output[0] + output[1];
        // Of tokens by the million, and of the factor by the billion.
        let unit = 1_000_000 * u128::from(Decimal::ONE);
        let nano = all.saturating_mul(factor.0.into()).saturating_add(unit / 2) / unit;
        Some(Cost {
            nano: u64::try_from(nano).unwrap_or(u64::MAX).min(i64::MAX.unsigned_abs()),
            price_id: price.id(factor),
        })
    }
}

impl ModelPrice {
    fn time(&self) -> Time<'_> {
        (&self.model, self.valid_from, self.valid_to.unwrap_or(NaiveDate::MAX))
    }

    fn id(&self, factor: Decimal) -> String {
        let Self {
            model,
            valid_from,
            input,
            output,
            ..
        } = self;
        let cached = self.cached.map_or_else(|| "-".to_owned(), |cached| cached.to_string());
        let factor = match factor.0 {
            Decimal::ONE => String::new(),
            _ => format!("x{factor}"),
        };
        format!("{model}@{valid_from}:{input}/{cached}/{output}{factor}")
    }
}

/// The rows of a list. No two of one name hold on the same day.
fn dated<T>(list: Option<At<'_>>, read: fn(&Fields<'_>) -> Option<T>, time: fn(&T) -> Time<'_>) -> Vec<T> {
    let mut rows: Vec<(u64, T)> = Vec::new();
    for at in list.and_then(|list| list.items(MOST_ROWS)).unwrap_or_default() {
        let Some(row) = at.record(read) else { continue };
        let (name, from, to) = time(&row);
        if to < from {
            let found = format!("{to}");
            let allowed = format!("a day that is not before valid_from, {from}");
            at.clone().named(format!("{}.valid_to", at.path)).error(found, allowed);
        }
        let earlier = rows.iter().find(|(_, other)| {
            let (other, other_from, other_to) = time(other);
            other == name && from <= other_to && other_from <= to
        });
        if let Some((line, _)) = earlier {
            let found = format!("{name} on days that the row of line {line} has too");
            at.error(found, "one row of a name for each day");
        }
        rows.push((at.line, row));
    }
    rows.into_iter().map(|(_, row)| row).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::domain::time::Timestamp;

    const TABLE: &str = "
[[models]]
model = \"m\"
valid_from = 2026-10-01
valid_to = 2026-11-30
input = 2
cached = 0.15
output = 10.000000001

[[models]]
model = \"m\"
valid_from = 2026-12-01
input = 4
output = 20

[tiers]
standard = 1
batch = 0.5
";

    fn table() -> Prices {
        Prices::read(TABLE, "prices.toml").unwrap()
    }

    fn served(model: &str, at: &str, tier: Option<&str>) -> Served {
        Served {
            started_at: Timestamp::parse(at).unwrap().0,
            service_tier: tier.map(Arc::from),
            ..Served::by(model)
        }
    }

    fn usage([input_tokens, cached_tokens, output_tokens, thought_tokens]: [u64; 4]) -> Usage {
        Usage {
            input_tokens,
            output_tokens,
            thought_tokens,
            cached_tokens,
        }
    }

    fn nano(tokens: [u64; 4]) -> u64 {
        let served = served("m", "2026-11-30T23:59:59Z", None);
        table().cost(&served, &usage(tokens)).unwrap().nano
    }

    #[test]
    fn the_built_in_table_is_valid_and_has_the_published_prices() {
        let prices = Prices::read(Prices::BUILT_IN, "prices.toml").unwrap();
        let price = |model: &str, day: &str| {
            let row = prices.on(model, day.parse().unwrap())?;
            Some((
                row.input.to_string(),
                row.cached.map(|cached| cached.to_string()),
                row.output.to_string(),
            ))
        };
        let text = |input: &str, cached: Option<&str>, output: &str| {
            Some((input.to_owned(), cached.map(str::to_owned), output.to_owned()))
        };
        assert_eq!(price("gemini-4-neon", "2026-11-30"), text("3", Some("0.15"), "15"));
        assert_eq!(
            price("gemini-4-hydrogen", "2026-11-30"),
            text("1.5", Some("0.075"), "7.5")
        );
        for model in ["gemini-4-argon", "gemini-4-carbon"] {
            assert_eq!(price(model, "2026-11-30"), text("2", None, "10"));
            assert_eq!(price(model, "2026-12-01"), text("4", None, "20"));
        }
        assert_eq!(price("gemini-3.5-flash-lite", "2026-11-30"), text("0.3", None, "2.5"));
        let tiers: Vec<_> = prices
            .tiers
            .iter()
            .map(|(name, factor)| format!("{name} {factor}"))
            .collect();
        assert_eq!(tiers, ["standard 1", "batch 0.5", "flex 0.5", "priority 1.8"]);
        assert!(prices.requests.iter().all(|row| row.per_thousand.to_string() == "14"));
    }

    /// The counts of a recorded answer: 5,776 tokens of the prompt, of which 5,770 came from a cache.
    #[test]
    fn cached_tokens_are_part_of_the_input_and_cost_once() {
        assert_eq!(nano([5_776, 5_770, 0, 0]), 6 * 2_000 + 5_770 * 150);
    }

    #[test]
    fn a_call_costs_what_its_model_cost_on_that_day_in_that_tier() {
        let cost = |model, at, tier| table().cost(&served(model, at, tier), &usage([1_000, 0, 100, 10]));
        let some = |nano, price_id: &str| {
            Some(Cost {
                nano,
                price_id: price_id.to_owned(),
            })
        };
        let before = "m@2026-10-01:2/0.15/10.000000001";
        assert_eq!(cost("m", "2026-11-30T23:59:59.999999Z", None), some(3_100_000, before));
        assert_eq!(
            cost("m", "2026-12-01T00:00:00Z", Some("standard")),
            some(6_200_000, "m@2026-12-01:4/-/20")
        );
        assert_eq!(
            cost("m", "2026-12-01T00:00:00Z", Some("BATCH")),
            some(3_100_000, "m@2026-12-01:4/-/20x0.5")
        );
    }

    #[test]
    fn what_is_not_known_has_no_cost_and_not_none() {
        let some = usage([1_000, 0, 100, 0]);
        let cost = |served: &Served, usage: &Usage| table().cost(served, usage);
        let at = "2026-12-01T00:00:00Z";
        assert!(cost(&served("m", at, None), &some).is_some());
        let unnamed = Served {
            model: None,
            ..served("m", at, None)
        };
        assert_eq!(cost(&unnamed, &some), None, "no model answered");
        assert_eq!(cost(&served("other", at, None), &some), None, "another model");
        assert_eq!(
            cost(&served("m", "2026-09-30T23:59:59Z", None), &some),
            None,
            "before the first row"
        );
        assert_eq!(cost(&served("m", at, Some("turbo")), &some), None, "another tier");
        assert_eq!(
            cost(&served("m", at, None), &Usage::default()),
            None,
            "nothing was counted"
        );
        assert_eq!(
            cost(&served("m", at, None), &usage([10, 1, 0, 0])),
            None,
            "no price of cached tokens"
        );
    }

    #[test]
    fn every_error_of_a_table_has_its_line_and_field() {
        let text = "
[[models]]
model = \"a model\"
valid_from = \"2026-13-01\"
input = -1
output = \"1.0000000001\"
per = 1

[[models]]
model = \"m\"
valid_from = 2026-10-01
valid_to = 2026-09-30
input = 100000.1
output = true

[[models]]
model = \"n\"
valid_from = 2026-10-01
input = 1
output = 1

[[models]]
model = \"n\"
valid_from = 2026-11-01
valid_to = 2026-10-31
input = 1
output = 1

[[models]]
model = \"n\"
valid_from = 2026-01-01
valid_to = 2026-10-01
input = 1e3
output = 0

[tiers]
batch = \"half\"

[[requests]]
name = \"r\"
";
        let errors = Prices::read(text, "p.toml").unwrap_err();
        let errors: Vec<_> = errors.iter().map(|error| error.to_string()).collect();
        let amount = "a number from 0 to 100000 with at most 9 decimals, such as 1.5";
        let expected = [
            "p.toml:3: models[0].model: found \"a model\"; allowed: the name of a model, such as gemini-4-neon"
                .to_owned(),
            "p.toml:4: models[0].valid_from: found \"2026-13-01\"; allowed: a date such as 2026-11-30".to_owned(),
        ];
        assert_eq!(errors[..2], expected, "{errors:#?}");
        for place in [
            format!("p.toml:5: models[0].input: found -1; allowed: {amount}"),
            format!("p.toml:6: models[0].output: found \"1.0000000001\"; allowed: {amount}"),
            "p.toml:7: models[0].per: found an unknown field; allowed: ".to_owned(),
            format!("p.toml:13: models[1].input: found 100000.1; allowed: {amount}"),
            format!("p.toml:14: models[1].output: found true; allowed: {amount}"),
            "models[3].valid_to: found 2026-10-31; allowed: a day that is not before valid_from, 2026-11-01".to_owned(),
            "models[4]: found n on days that the row of line 16 has too; allowed: one row".to_owned(),
            format!("p.toml:37: tiers.batch: found \"half\"; allowed: {amount}"),
            "requests[0].valid_from: found nothing; allowed: a date".to_owned(),
            "requests[0].per_thousand: found nothing; allowed: a number".to_owned(),
        ] {
            assert!(
                errors.iter().any(|error| error.contains(&place)),
                "{place}\n{errors:#?}"
            );
        }
        let errors = Prices::read("models = 1\n[tiers", "p.toml").unwrap_err();
        assert_eq!(errors[0].line, Some(2), "{errors:?}");
    }

    #[test]
    fn a_table_replaces_the_rows_of_its_models_and_keeps_the_others() {
        let own = "[[models]]\nmodel = \"m\"\nvalid_from = 2026-11-01\ninput = 1\noutput = 1\n[tiers]\nbatch = 0.25\n";
        let other = format!("{TABLE}[[models]]\nmodel = \"n\"\nvalid_from = 2026-11-01\ninput = 1\noutput = 1\n");
        let all = Prices::read(own, "own")
            .unwrap()
            .or(Prices::read(&other, "other").unwrap());
        let models: Vec<_> = all
            .models
            .iter()
            .map(|row| (&*row.model, row.valid_from.to_string()))
            .collect();
        assert_eq!(models, [("m", "2026-11-01".to_owned()), ("n", "2026-11-01".to_owned())]);
        let tiers: Vec<_> = all
            .tiers
            .iter()
            .map(|(name, factor)| format!("{name} {factor}"))
            .collect();
        assert_eq!(tiers, ["batch 0.25", "standard 1"]);
    }

    proptest! {
        #[test]
        fn a_decimal_is_read_as_it_is_shown(nano in 0..=Decimal::MOST) {
            prop_assert_eq!(Decimal::parse(&Decimal(nano).to_string()), Some(Decimal(nano)));
            // As TOML keeps a number without quotes.
            let number: f64 = Decimal(nano).to_string().parse().unwrap();
            prop_assert_eq!(Decimal::parse(&number.to_string()), Some(Decimal(nano)));
        }

        /// Each cost is rounded once, by half a billionth at most.
        #[test]
        fn costs_add_up_and_grow_with_tokens(
            a in prop::array::uniform4(0..1_000_000_000_u64), b in prop::array::uniform4(0..1_000_000_000_u64),
        ) {
            let valid = |[input, cached, output, thoughts]: [u64; 4]| [input.max(1), cached.min(input), output, thoughts];
            let (a, b) = (valid(a), valid(b));
            let both = std::array::from_fn(|n| a[n] + b[n]);
            prop_assert!((nano(a) + nano(b)).abs_diff(nano(both)) <= 1);
            // More tokens that came from no cache cost more.
            let more = [a[0] + b[0], a[1], a[2] + b[2], a[3] + b[3]];
            prop_assert!(nano(more) >= nano(a));
        }

        /// Whatever a provider counts, a cost is a number that databases keep.
        #[test]
        fn no_count_is_too_large(tokens in prop::array::uniform4(prop_oneof![Just(0), Just(u64::MAX), any::<u64>()])) {
            let served = served("m", "2026-11-01T00:00:00Z", None);
            match table().cost(&served, &usage(tokens)) {
                Some(cost) => prop_assert!(i64::try_from(cost.nano).is_ok()),
                None => prop_assert_eq!(usage(tokens).total(), 0),
            }
        }
    }
}
