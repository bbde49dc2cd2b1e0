//! `gavel prices`: what models cost under this configuration.

use std::collections::BTreeSet;

use chrono::{Days, NaiveDate, NaiveTime, Utc};
use serde_json::{Value, json};

use crate::api::filter::quoted;
use crate::api::stats::{Measure, Statistics, StatsQuery};
use crate::app;
use crate::cli::client::Wait;
use crate::cli::exit::Exit;
use crate::cli::gavel::{self, Gavel, OfTenant, Talk};
use crate::cli::list::{Column, known, table_of};
use crate::cli::output;
use crate::config::{DEMO_MODEL, Resolved};
use crate::domain::prices::{Decimal, ModelPrice, Prices, RequestPrice};
use crate::domain::time::Timestamp;

/// The commands of `gavel prices`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List the prices of models, the factors of service tiers, and the prices of requests
    List(List),
    /// Check that each model that answered in the last 7 days has a price, and that no price ends within 30 days
    Check(OfTenant),
}

/// Options of `gavel prices list`.
#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// Print the rows as JSON, one per line
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(command: Command, resolved: Resolved) -> anyhow::Result<Exit> {
    let prices = app::prices(&resolved.config)?;
    match command {
        Command::List(List { json: true }) => {
            output::json_lines(&prices.models)?;
            output::json_lines(
                prices
                    .tiers
                    .iter()
                    .map(|(tier, factor)| json!({"tier": tier, "factor": factor})),
            )?;
            output::json_lines(&prices.requests)?;
            Ok(Exit::Done)
        }
        Command::List(List { json: false }) => {
            let tables = [
                table_of(MODELS, &prices.models),
                table_of(TIERS, &prices.tiers),
                table_of(REQUESTS, &prices.requests),
            ];
            output::line(&tables.join("\n"))?;
            Ok(Exit::Done)
        }
        Command::Check(tenant) => {
            let today = Utc::now().date_naive();
            gavel::run(&Check { prices, today }, tenant.into(), Some(resolved.config)).await
        }
    }
}

const MODELS: &[Column<ModelPrice>] = &[
    ("model", |row| row.model.clone()),
    ("from", |row| row.valid_from.to_string()),
    ("to", |row| known(row.valid_to)),
    ("input $/M", |row| row.input.to_string()),
    ("cached $/M", |row| known(row.cached)),
    ("output $/M", |row| row.output.to_string()),
];

const TIERS: &[Column<(String, Decimal)>] = &[
    ("service tier", |(tier, _)| tier.clone()),
    ("factor", |(_, factor)| factor.to_string()),
];

const REQUESTS: &[Column<RequestPrice>] = &[
    ("requests", |row| row.name.clone()),
    ("from", |row| row.valid_from.to_string()),
    ("to", |row| known(row.valid_to)),
    ("$ per 1000", |row| row.per_thousand.to_string()),
];

/// `gavel prices check`.
struct Check {
    prices: Prices,
    today: NaiveDate,
}

/// The days before today whose answers are checked, and those after it for which prices are.
const BEFORE: Days = Days::new(7);
const AFTER: u64 = 30;
const CACHED: &str = "sum(cached_tokens)";

impl Talk for Check {
    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let mut findings = self.ending();
        let from = (self.today - BEFORE).and_time(NaiveTime::MIN).and_utc();
        let question = StatsQuery {
            from: Some(Timestamp(from.timestamp_micros())),
            by: vec!["model".to_owned()],
            // The demo model costs nothing.
            filter: Some(format!("model != null AND model != {}", quoted(DEMO_MODEL))),
            measures: vec![Measure::Named(CACHED.to_owned())],
            order: Some("model".to_owned()),
            ..StatsQuery::default()
        };
        let answered: Statistics = gavel.post("v1/stats/query", &[], Wait::No, &question).await?;
        for row in &answered.rows {
            let model = row.get("model").and_then(Value::as_str).unwrap_or_default();
            let cached = row.get(CACHED).and_then(Value::as_u64);
            match self.prices.on(model, self.today) {
                None => findings.push(format!("{model} answered in the last 7 days and has no price")),
                Some(price) if price.cached.is_none() && cached > Some(0) => {
                    findings.push(format!(
                        "{model} has no price of cached tokens, which it used in the last 7 days"
                    ));
                }
                Some(_) => {}
            }
        }
        if findings.is_empty() {
            output::line("every model that answered in the last 7 days has a price, and none ends within 30 days")?;
            return Ok(Exit::Done);
        }
        output::line(&findings.join("\n"))?;
        output::note("Add rows to the file that prices.file (GAVEL_PRICES) names. What they do not price costs null.");
        Ok(Exit::Failed)
    }
}

impl Check {
    /// A sentence for each model that has a price today, and not on one of the next days.
    fn ending(&self) -> Vec<String> {
        let models: BTreeSet<_> = self.prices.models.iter().map(|row| row.model.as_str()).collect();
        let ending = models.into_iter().filter_map(|model| {
            let days = (0..=AFTER).filter_map(|n| self.today.checked_add_days(Days::new(n)));
            let mut days = days.take_while(|day| self.prices.on(model, *day).is_some());
            let last = days.by_ref().last()?;
            (last < self.today + Days::new(AFTER)).then(|| format!("the price of {model} ends on {last}"))
        });
        ending.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_ends_on_the_last_day_before_one_that_no_row_has() {
        let row = |model: &str, from: &str, to: &str| {
            format!("[[models]]\nmodel = \"{model}\"\nvalid_from = {from}\n{to}\ninput = 1\noutput = 1\n")
        };
        let text = row("stays", "2026-01-01", "")
            + &row("follows", "2026-01-01", "valid_to = 2026-11-30")
            + &row("follows", "2026-12-01", "valid_to = 2026-12-30")
            + &row("gap", "2026-01-01", "valid_to = 2026-12-29")
            + &row("gap", "2026-12-31", "")
            + &row("ended", "2026-01-01", "valid_to = 2026-11-29")
            + &row("today", "2026-01-01", "valid_to = 2026-11-30")
            + &row("coming", "2026-12-01", "");
        let check = Check {
            prices: Prices::read(&text, "prices.toml").unwrap(),
            today: NaiveDate::from_ymd_opt(2026, 11, 30).unwrap(),
        };
        let expected = [
            "the price of gap ends on 2026-12-29",
            "the price of today ends on 2026-11-30",
        ];
        assert_eq!(check.ending(), expected);
    }
}
