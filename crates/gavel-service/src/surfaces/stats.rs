//! Statistics of the logs: a question is checked and counted by the store; what is made of the counts is here.

use std::cmp::Ordering;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, Datelike, Days, NaiveDate, NaiveDateTime, Offset, TimeDelta, TimeZone, Utc};
use chrono_tz::Tz;
use serde_json::{Map, Value, json};

use super::caller::Caller;
use super::decisions::only_user;
use super::problem::Problem;
use super::request::time_zone;
use crate::api::problem::FieldError;
use crate::api::stats::{
    Bucket, CompareQuery, Compared, Comparison, Difference, Measure, Missing, Others, Rate, Share, Shift, Side,
    Statistics, StatsQuery, StatsSource, number,
};
use crate::domain::histogram;
use crate::domain::ids::UserId;
use crate::domain::prices::Decimal;
use crate::domain::proportion::Proportion;
use crate::domain::time::Timestamp;
use crate::ports::clock::Clock;
use crate::ports::records::QueryError;
use crate::ports::stats::{QUARTER_US, Stats, StatsQuestion, Tally, Units};

/// The time that is counted if none is given.
const DAYS: u64 = 7;
/// The most rows of an answer, and how many it has if no limit is given.
pub const MOST_ROWS: u32 = 10_000;
pub const ROWS: u32 = 1000;
/// The most fields and measures of a question.
const MOST: usize = 16;

/// Statistics, restricted to what a caller may see.
#[derive(Clone)]
pub struct StatsQueries {
    store: Arc<dyn Stats>,
    clock: Arc<dyn Clock>,
}

/// A named question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// How decisions ended.
    Outcomes,
    /// Where their time went.
    Latency,
    /// How tools did.
    Tools,
    /// What models cost.
    Cost,
    /// Which model answered for which.
    Models,
}

impl Named {
    /// The fixed question of which it is one.
    pub fn question(self) -> StatsQuery {
        let (source, by, measures) = match self {
            Self::Outcomes => (StatsSource::Decisions, "outcome_category", "count"),
            Self::Latency => (
                StatsSource::Decisions,
                "",
                "count p50(duration_ms) p95(duration_ms) p50(model_ms) p95(model_ms) p50(tool_ms) p95(tool_ms) \
                 p50(human_ms) p95(human_ms) p50(own_ms) p95(own_ms)",
            ),
            Self::Tools => (
                StatsSource::ToolInvocations,
                "server tool",
                "count failed p50(duration_ms) p95(duration_ms) avg(result_bytes)",
            ),
            Self::Cost => (
                StatsSource::Decisions,
                "model",
                "count sum(cost_usd) sum(input_tokens) sum(cached_tokens) sum(thought_tokens) sum(output_tokens)",
            ),
            Self::Models => (
                StatsSource::Decisions,
                "requested_model model",
                "count failed p50(model_ms) p95(model_ms)",
            ),
        };
        let measure = |name: &str| match name {
            "failed" => Measure::Rate(Rate {
                rate: failed(source).to_owned(),
                name: Some(name.to_owned()),
            }),
            _ => Measure::Named(name.to_owned()),
        };
        StatsQuery {
            source: Some(source),
            by: by.split_whitespace().map(str::to_owned).collect(),
            measures: measures.split(' ').map(measure).collect(),
            ..StatsQuery::default()
        }
    }

    /// The question about these rows of it, and also by these fields.
    pub fn narrowed(self, given: StatsQuery) -> StatsQuery {
        let StatsQuery {
            source, by, measures, ..
        } = self.question();
        StatsQuery {
            source,
            by: [by, given.by].concat(),
            measures,
            ..given
        }
    }
}

/// The filter of rows that failed.
pub fn failed(source: StatsSource) -> &'static str {
    match source {
        StatsSource::Decisions => "outcome_category = \"ERROR:*\"",
        StatsSource::ToolInvocations => "success = false",
    }
}

impl StatsQueries {
    /// Creates the queries over `store`.
    pub fn new(store: Arc<dyn Stats>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock }
    }

    /// Answers a question about rows, of `user` if given.
    ///
    /// # Errors
    /// [`Problem`]: each invalid member of the question, with a JSON pointer; the log is unavailable; it takes too long.
    pub async fn ask(&self, caller: &Caller, user: Option<UserId>, query: StatsQuery) -> Result<Statistics, Problem> {
        let now = Timestamp(self.clock.now_us());
        let user = only_user(caller).cloned().or(user);
        let checked = Checked::new(query, user, now)?;
        let found = self.store.tally(&caller.tenant, &checked.question).await;
        let found = found.map_err(|error| match error {
            QueryError::Invalid { field, detail } => Problem::invalid(format!("/{field}"), detail),
            other => other.into(),
        })?;
        let missing = checked.made.iter().find_map(|(_, made)| match made {
            Made::Dollars(_, missing) => Some(found.tallies.iter().map(|tally| tally.sums[*missing]).sum::<i64>()),
            _ => None,
        });
        let is_percentile = |(_, made): &(String, Made)| matches!(made, Made::Percentile(..));
        let (from, to) = checked.question.time;
        let (rows, other) = checked.rows(found.tallies);
        Ok(Statistics {
            from: Timestamp(from),
            to: Timestamp(to),
            rows,
            other,
            open: found.open,
            missing: Missing {
                cost: missing.and_then(|missing| missing.try_into().ok()),
            },
            data_until: now,
            source: found.from,
            percentile_error: checked.made.iter().any(is_percentile).then_some(histogram::ERROR),
        })
    }

    /// Sets two sets of decisions beside each other.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub async fn compare(
        &self,
        caller: &Caller,
        user: Option<UserId>,
        query: CompareQuery,
    ) -> Result<Comparison, Problem> {
        let now = Timestamp(self.clock.now_us());
        let (from, to) = span(query.from, query.to, now).map_err(|detail| Problem::invalid("/from", detail))?;
        let (from, to) = (Timestamp(from), Timestamp(to));
        let of = |filter| StatsQuery {
            from: Some(from),
            to: Some(to),
            filter: Some(filter),
            limit: Some(MOST_ROWS),
            ..StatsQuery::default()
        };
        let a = self.set(caller, user.clone(), of(query.a)).await;
        let a = a.map_err(|problem| problem.at("/filter", "/a"))?;
        let b = self.set(caller, user, of(query.b)).await;
        let b = b.map_err(|problem| problem.at("/filter", "/b"))?;
        let mix = mix(&a, &b);
        Ok(Comparison {
            from,
            to,
            says: says(&a, &b, &mix),
            outcomes: outcomes(&a, &b),
            a: a.side,
            b: b.side,
            mix,
        })
    }

    async fn set(&self, caller: &Caller, user: Option<UserId>, of: StatsQuery) -> Result<Set, Problem> {
        let ask = |by: Option<&str>, measures: Vec<Measure>| {
            let by = by.into_iter().map(str::to_owned).collect();
            let query = StatsQuery {
                by,
                measures,
                ..of.clone()
            };
            self.ask(caller, user.clone(), query)
        };
        let all = ["count", P50, P95, COST].map(|name| Measure::Named(name.to_owned()));
        let all = ask(None, all.into()).await?;
        let row = all.rows.first();
        let member = |name: &str| row.and_then(|row| row.get(name));
        let failed = Measure::Rate(Rate {
            rate: "call.success = false".to_owned(),
            name: None,
        });
        let failed = ask(None, vec![failed]).await?;
        let failed = failed.rows.first().and_then(|row| row["rate"]["k"].as_u64());
        let n = member("count").and_then(Value::as_u64).unwrap_or_default();
        let mut counts = Vec::new();
        for field in [OUTCOME].into_iter().chain(MIX) {
            let found = ask(Some(field), Vec::new()).await?;
            let count = |row: &Map<String, Value>| {
                let value = row[field].as_str().map(str::to_owned);
                (value, row["count"].as_u64().unwrap_or_default())
            };
            counts.push(found.rows.iter().map(count).collect());
        }
        Ok(Set {
            side: Side {
                n,
                p50: member(P50).and_then(number),
                p95: member(P95).and_then(number),
                cost_usd: member(COST).and_then(Value::as_str).map(str::to_owned),
                cost_missing: all.missing.cost.unwrap_or_default(),
                failed_calls: share(failed.unwrap_or_default(), n),
            },
            counts,
        })
    }
}

/// What is asked of each set as a whole.
const P50: &str = "p50(duration_ms)";
const P95: &str = "p95(duration_ms)";
const COST: &str = "sum(cost_usd)";
const OUTCOME: &str = "outcome_category";
/// The fields that traffic is compared by.
const MIX: [&str; 4] = ["surface", "agent_id", "requested_model", "intent"];
/// The sum of decisions whose cost is unknown.
const MISSING: &str = "cost_missing";
/// Fewer decisions say nothing of a rate.
const TOO_FEW: u64 = 30;

/// How many rows have each value of a field.
type Counts = BTreeMap<Option<String>, u64>;

/// What is known of one of two sets.
struct Set {
    side: Side,
    /// Of [`OUTCOME`], and of each of [`MIX`].
    counts: Vec<Counts>,
}

impl Set {
    /// Those with one of these values.
    fn of(&self, counts: &Counts, is_such: impl Fn(&Option<String>) -> bool) -> Proportion {
        let such = counts.iter().filter(|(value, _)| is_such(value));
        Proportion {
            hits: such.map(|(_, count)| count).sum(),
            of: self.side.n,
        }
    }

    /// The decisions that ended with an error.
    fn errors(&self) -> Proportion {
        let is_error = |value: &Option<String>| value.as_ref().is_some_and(|name| name.starts_with("ERROR:"));
        self.of(&self.counts[0], is_error)
    }
}

/// The values of a field in both sets, each with its proportions.
fn both<'a>(a: &'a Set, b: &'a Set, field: usize) -> Vec<(&'a Option<String>, Proportion, Proportion)> {
    let (of_a, of_b) = (&a.counts[field], &b.counts[field]);
    let values: BTreeSet<_> = of_a.keys().chain(of_b.keys()).collect();
    let both = |value| {
        let is_it = |other: &Option<String>| other == value;
        (value, a.of(of_a, is_it), b.of(of_b, is_it))
    };
    values.into_iter().map(both).collect()
}

fn outcomes(a: &Set, b: &Set) -> Vec<Compared> {
    let compared = both(a, b, 0).into_iter().map(|(name, a, b)| Compared {
        name: name.clone().unwrap_or_default(),
        a: share(a.hits, a.of),
        b: share(b.hits, b.of),
        difference: a.difference(b).map(|(value, low, high)| Difference {
            value: rounded(value),
            low: rounded(low),
            high: rounded(high),
        }),
        p: a.p(b),
    });
    let mut compared: Vec<_> = compared.collect();
    compared.sort_by(|one, other| one.p.unwrap_or(1.0).total_cmp(&other.p.unwrap_or(1.0)));
    compared
}

/// The largest shift of each field, without those that do not shift.
fn mix(a: &Set, b: &Set) -> Vec<Shift> {
    let shifts = (1..).zip(MIX).filter_map(|(place, field)| {
        let shifts = both(a, b, place).into_iter().map(|(value, a, b)| Shift {
            field: field.to_owned(),
            value: value.clone(),
            largest_shift: rounded((b.value().unwrap_or_default() - a.value().unwrap_or_default()).abs()),
        });
        shifts.max_by(|one, other| one.largest_shift.total_cmp(&other.largest_shift))
    });
    let mut shifts: Vec<_> = shifts.filter(|shift| shift.largest_shift > 0.0).collect();
    shifts.sort_by(|one, other| other.largest_shift.total_cmp(&one.largest_shift));
    shifts
}

/// The comparison in words.
fn says(a: &Set, b: &Set, mix: &[Shift]) -> String {
    let (n_a, n_b) = (a.side.n, b.side.n);
    if n_a.min(n_b) < TOO_FEW {
        return format!("Too few to say: {n_a} and {n_b} decisions; {TOO_FEW} of each are needed.");
    }
    let (of_a, of_b) = (a.errors(), b.errors());
    let percent = |share: Option<f64>| format!("{:.1} %", share.unwrap_or_default() * 100.0);
    let (rate_a, rate_b) = (percent(of_a.value()), percent(of_b.value()));
    let (value, low, high) = of_a.difference(of_b).unwrap_or_default();
    let points = |share: f64| format!("{:.1}", share * 100.0);
    let verdict = match (low > 0.0, high < 0.0) {
        (true, _) => "B fails more often",
        (_, true) => "B fails less often",
        _ => "No difference of errors is shown",
    };
    let mut says = format!(
        "{verdict}: {rate_b} against {rate_a} ({:+.1} points, 95 %: {} to {}; {n_b} and {n_a} decisions).",
        value * 100.0,
        points(low),
        points(high)
    );
    if let Some(shift) = mix.first().filter(|shift| shift.largest_shift >= 0.05) {
        let points = points(shift.largest_shift);
        says += &format!(
            " The two had different traffic: {} shifted by {points} points.",
            shift.field
        );
    }
    says
}

/// What is made of a tally for one member of a row.
#[derive(Clone, Debug, PartialEq)]
enum Made {
    Count,
    /// The place among the rates.
    Share(usize),
    /// A sum, and the numbers by which it is divided for an average: of these durations, or of all rows.
    Sum(usize),
    Average(usize, Option<usize>),
    /// Those of the cost, and of the rows whose cost is unknown.
    Dollars(usize, usize),
    Percentile(usize, f64),
}

/// A question as it is counted.
struct Checked {
    question: StatsQuestion,
    made: Vec<(String, Made)>,
    zone: Tz,
    bucket: Option<Bucket>,
    order: Option<(String, bool)>,
    limit: usize,
}

/// Adds what the store counts, once; returns its place.
fn place(of: &mut Vec<String>, name: &str) -> usize {
    of.iter().position(|one| one == name).unwrap_or_else(|| {
        of.push(name.to_owned());
        of.len() - 1
    })
}

impl Checked {
    fn new(query: StatsQuery, user: Option<UserId>, now: Timestamp) -> Result<Self, Problem> {
        let mut errors = Vec::new();
        let mut invalid = |pointer: String, detail: String| errors.push(FieldError::new(pointer, detail));
        let time = span(query.from, query.to, now).unwrap_or_else(|detail| {
            invalid("/from".into(), detail);
            (0, 0)
        });
        let zone = time_zone(query.time_zone.as_deref()).unwrap_or_else(|detail| {
            invalid("/time_zone".into(), detail);
            None
        });
        let zone = zone.unwrap_or(Tz::UTC);
        let mut question = StatsQuestion {
            source: query.source.unwrap_or_default(),
            time,
            filter: query.filter,
            units: query.bucket.map(|bucket| units(bucket, zone, time)),
            by: query.by,
            user,
            ..StatsQuestion::default()
        };
        let mut measures = query.measures;
        if measures.is_empty() {
            measures = vec![Measure::Named("count".to_owned())];
        }
        for (name, many) in [("/by", question.by.len()), ("/measures", measures.len())] {
            if many > MOST {
                invalid(name.into(), format!("has {many}; at most {MOST} are allowed"));
            }
        }
        let mut made: Vec<(String, Made)> = Vec::new();
        let mut members = question.by.clone();
        members.extend(query.bucket.map(|_| "bucket".to_owned()));
        for (at, measure) in measures.into_iter().enumerate() {
            let name = measure.name().to_owned();
            let one = match measure {
                Measure::Rate(Rate { rate, .. }) => {
                    question.rates.push(rate);
                    Some(Made::Share(question.rates.len() - 1))
                }
                Measure::Named(name) => parse(&name, &mut question),
            };
            let pointer = format!("/measures/{at}");
            match one {
                _ if members.contains(&name) || name == "bucket" => {
                    let advice = "has the name of another member of the rows; give a rate another name";
                    invalid(pointer, format!("{name:?} {advice}"));
                }
                Some(one) => {
                    members.push(name.clone());
                    made.push((name, one));
                }
                None => invalid(
                    pointer,
                    format!(
                        "is {name:?}; allowed: count, pN(FIELD) with N from 1 to 99, avg(FIELD), sum(FIELD), sum(cost_usd), \
                         and a rate as {{\"rate\": FILTER, \"name\": NAME}}"
                    ),
                ),
            }
        }
        let order = query.order.map(|order| match order.strip_prefix('-') {
            Some(name) => (name.to_owned(), true),
            None => (order, false),
        });
        if let Some((name, _)) = order.as_ref().filter(|(name, _)| !members.contains(name)) {
            let allowed = members.join(", ");
            invalid(
                "/order".into(),
                format!("is {name:?}; allowed: {allowed}, each also with - before it"),
            );
        }
        if query.limit.is_some_and(|limit| !(1..=MOST_ROWS).contains(&limit)) {
            invalid("/limit".into(), format!("is not in 1..={MOST_ROWS}"));
        }
        if !errors.is_empty() {
            return Err(errors.into());
        }
        Ok(Self {
            question,
            made,
            zone,
            bucket: query.bucket,
            order,
            limit: query.limit.unwrap_or(ROWS) as usize,
        })
    }

    /// The member of a row.
    fn member(&self, made: &Made, tally: &Tally) -> Value {
        match made {
            Made::Count => tally.count.into(),
            Made::Share(at) => json!(share(tally.rates[*at], tally.count)),
            Made::Sum(at) => tally.sums[*at].into(),
            Made::Average(at, length) => {
                let of = length.map_or(tally.count, |length| tally.lengths[length].count());
                // Sums of durations are microseconds.
                let unit = if length.is_some() { 1000.0 } else { 1.0 };
                let average = (of > 0).then(|| tally.sums[*at] as f64 / of as f64 / unit);
                average.map_or(Value::Null, |average| json!((average * 1000.0).round() / 1000.0))
            }
            Made::Dollars(at, missing) => dollars(tally.sums[*at], tally.sums[*missing], tally.count).into(),
            Made::Percentile(at, share) => json!(tally.lengths[*at].percentile(*share)),
        }
    }

    /// The rows in their order, and what the limit leaves out.
    fn rows(&self, tallies: Vec<Tally>) -> (Vec<Map<String, Value>>, Option<Others>) {
        // Days become weeks and months here.
        let mut groups = BTreeMap::<_, Tally>::new();
        for tally in tallies {
            let bucket = self.bucket.zip(tally.unit);
            let begin = bucket.map(|(bucket, unit)| begin(bucket, self.zone, unit));
            match groups.entry((begin, tally.by.clone())) {
                Entry::Occupied(mut all) => add(all.get_mut(), &tally),
                Entry::Vacant(none) => {
                    none.insert(tally);
                }
            }
        }
        let rows = groups.into_iter().map(|((begin, values), tally)| {
            let (at, bucket) = begin.unzip();
            let bucket = bucket.map(|begin| ("bucket".to_owned(), begin.into()));
            let fields = self.question.by.iter().cloned();
            let fields = fields.zip(values.into_iter().map(Value::from));
            let made = self.made.iter();
            let made = made.map(|(name, made)| (name.clone(), self.member(made, &tally)));
            let row: Map<_, _> = bucket.into_iter().chain(fields).chain(made).collect();
            (at, tally.count, row)
        });
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by(|(at, n, a), (bt, m, b)| {
            let (name, descending) = self
                .order
                .as_ref()
                .map_or(("bucket", false), |(name, down)| (name, *down));
            let order = if name == "bucket" {
                at.cmp(bt)
            } else {
                compared(&a[name], &b[name])
            };
            let order = if descending { order.reverse() } else { order };
            order.then(m.cmp(n)).then(at.cmp(bt))
        });
        let left = rows.split_off(self.limit.min(rows.len()));
        let other = (!left.is_empty()).then(|| Others {
            groups: left.len() as u64,
            count: left.iter().map(|(_, count, _)| count).sum(),
        });
        (rows.into_iter().map(|(.., row)| row).collect(), other)
    }
}

/// A member that may be a share is ordered by its value; what is absent comes first.
fn compared(a: &Value, b: &Value) -> Ordering {
    match (number(a), number(b)) {
        (None, None) => a.as_str().cmp(&b.as_str()),
        (a, b) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
    }
}

/// A measure by its name.
fn parse(name: &str, question: &mut StatsQuestion) -> Option<Made> {
    if name == "count" {
        return Some(Made::Count);
    }
    let (kind, field) = name.strip_suffix(')')?.split_once('(')?;
    let is_length = field.ends_with("_ms");
    match kind {
        "sum" if field == "cost_usd" => {
            let cost = place(&mut question.sums, "cost_nano");
            Some(Made::Dollars(cost, place(&mut question.sums, MISSING)))
        }
        "sum" if !is_length => Some(Made::Sum(place(&mut question.sums, field))),
        "avg" if is_length => {
            let length = place(&mut question.lengths, field);
            let sum = format!("{}_us", field.strip_suffix("_ms")?);
            Some(Made::Average(place(&mut question.sums, &sum), Some(length)))
        }
        "avg" => Some(Made::Average(place(&mut question.sums, field), None)),
        _ => {
            let percent = kind.strip_prefix('p')?.parse::<u8>().ok()?;
            let share = (1..=99).contains(&percent).then(|| f64::from(percent) / 100.0)?;
            Some(Made::Percentile(place(&mut question.lengths, field), share))
        }
    }
}

fn add(all: &mut Tally, more: &Tally) {
    all.count += more.count;
    all.rates
        .iter_mut()
        .zip(&more.rates)
        .for_each(|(all, more)| *all += more);
    all.sums.iter_mut().zip(&more.sums).for_each(|(all, more)| *all += more);
    all.lengths
        .iter_mut()
        .zip(&more.lengths)
        .for_each(|(all, more)| all.merge(more));
}

/// The asked time in microseconds, or why it is none.
fn span(from: Option<Timestamp>, to: Option<Timestamp>, now: Timestamp) -> Result<(i64, i64), String> {
    let to = to.unwrap_or(now);
    let from = from.unwrap_or(Timestamp(to.0.saturating_sub(DAYS as i64 * 96 * QUARTER_US)));
    match from < to {
        true => Ok((from.0, to.0)),
        false => Err(format!(
            "is {from}, which is not before {to}; allowed: an earlier time than `to`"
        )),
    }
}

/// The cost of rows in dollars; `None` if that of all of them is unknown.
fn dollars(nano: i64, missing: i64, count: u64) -> Option<String> {
    let is_known = count == 0 || u64::try_from(missing).is_ok_and(|missing| missing < count);
    is_known.then(|| Decimal(nano.try_into().unwrap_or_default()).to_string())
}

/// Three digits more than a percent has.
fn rounded(share: f64) -> f64 {
    (share * 100_000.0).round() / 100_000.0
}

fn share(hits: u64, of: u64) -> Share {
    let proportion = Proportion { hits, of };
    let interval = proportion.interval();
    Share {
        k: hits,
        n: of,
        value: proportion.value().map(rounded),
        low: interval.map(|(low, _)| rounded(low)),
        high: interval.map(|(_, high)| rounded(high)),
    }
}

// Time is divided by quarters of an hour, since every zone is that far from UTC; weeks and months are made of days.

/// How a bucket divides this time. Hours begin with the zone's hours, days with its days.
fn units(bucket: Bucket, zone: Tz, (from, to): (i64, i64)) -> Units {
    let quarters = if bucket == Bucket::Hour { 4 } else { 96 };
    let offset = |quarter: i64| {
        let at = DateTime::<Utc>::from_timestamp_micros(quarter * QUARTER_US).unwrap_or_default();
        let offset = i64::from(zone.offset_from_utc_datetime(&at.naive_utc()).fix().local_minus_utc()).div_euclid(900);
        if bucket == Bucket::Hour {
            offset.rem_euclid(4)
        } else {
            offset
        }
    };
    let (first, last) = (from.div_euclid(QUARTER_US), to.div_euclid(QUARTER_US) + 1);
    let (mut offsets, mut now) = (Vec::new(), offset(first));
    // A zone changes its offset a few times a year: looked for by days, then exactly.
    for day in (first..last).step_by(96) {
        let next = (day + 96).min(last);
        if offset(next) != now {
            let change = (day..next).find(|quarter| offset(*quarter) != now).unwrap_or(next);
            offsets.push((now, change));
            now = offset(next);
        }
    }
    offsets.push((now, i64::MAX));
    Units { quarters, offsets }
}

/// The buckets of this time, in order: when each begins, as the rows of an answer name it.
pub fn buckets(bucket: Bucket, zone: Tz, (from, to): (i64, i64)) -> Vec<String> {
    let units = units(bucket, zone, (from, to));
    let of = |us: i64| {
        let quarter = us.div_euclid(QUARTER_US);
        let offset = units.offsets.iter().find(|(_, before)| quarter < *before);
        (quarter + offset.map_or(0, |(offset, _)| *offset)).div_euclid(units.quarters)
    };
    let mut all: Vec<_> = (of(from)..=of(to - 1))
        .map(|unit| begin(bucket, zone, unit).1)
        .collect();
    all.dedup();
    all
}

/// When a unit's bucket begins: as the zone's clocks show it, and with its offset.
fn begin(bucket: Bucket, zone: Tz, unit: i64) -> (NaiveDateTime, String) {
    if bucket == Bucket::Hour {
        // An hour that clocks show twice is two hours.
        let utc = DateTime::<Utc>::from_timestamp_micros(unit * 4 * QUARTER_US).unwrap_or_default();
        let shift = zone
            .offset_from_utc_datetime(&utc.naive_utc())
            .fix()
            .local_minus_utc()
            .rem_euclid(3600);
        let begin = utc - TimeDelta::seconds(shift.into());
        return (begin.naive_utc(), begin.with_timezone(&zone).to_rfc3339());
    }
    let day = NaiveDate::default()
        .checked_add_signed(TimeDelta::days(unit))
        .unwrap_or_default();
    let back = match bucket {
        Bucket::Week => day.weekday().num_days_from_monday(),
        Bucket::Month => day.day0(),
        Bucket::Hour | Bucket::Day => 0,
    };
    let first = day.checked_sub_days(Days::new(back.into())).unwrap_or(day);
    let midnight = first.and_time(chrono::NaiveTime::MIN);
    // Where clocks are put forward at midnight, the day begins an hour later.
    let mut hours = (0..24).map(|hours| midnight + TimeDelta::hours(hours));
    let begin = hours.find_map(|local| zone.from_local_datetime(&local).earliest());
    (
        midnight,
        begin.map_or_else(|| midnight.to_string(), |begin| begin.to_rfc3339()),
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::ports::stats::Tallies;

    fn at(text: &str) -> i64 {
        Timestamp::parse(text).unwrap().0
    }

    /// The buckets of these times.
    fn buckets(bucket: Bucket, zone: Tz, times: &[&str]) -> Vec<String> {
        let all: Vec<_> = times.iter().map(|time| at(time)).collect();
        let units = units(bucket, zone, (all[0], *all.last().unwrap()));
        let of = |us: &i64| {
            let quarter = us.div_euclid(QUARTER_US);
            let (offset, _) = units.offsets.iter().find(|(_, until)| quarter < *until).unwrap();
            begin(bucket, zone, (quarter + offset).div_euclid(units.quarters)).1
        };
        all.iter().map(of).collect()
    }

    #[test]
    fn days_are_those_of_the_zone_also_when_clocks_change() {
        let berlin = [
            "2026-10-24T21:59:59Z",
            "2026-10-24T22:00:00Z",
            "2026-10-25T22:59:59Z",
            "2026-10-25T23:00:00Z",
        ];
        assert_eq!(
            buckets(Bucket::Day, Tz::Europe__Berlin, &berlin),
            [
                "2026-10-24T00:00:00+02:00",
                "2026-10-25T00:00:00+02:00",
                "2026-10-25T00:00:00+02:00",
                "2026-10-26T00:00:00+01:00"
            ]
        );
        let all = super::buckets(Bucket::Day, Tz::Europe__Berlin, (at(berlin[0]), at(berlin[3])));
        let days = ["2026-10-24T00:00:00+02:00", "2026-10-25T00:00:00+02:00"];
        assert_eq!(all, days, "before the end, each day once");
        let kolkata = ["2026-11-17T18:29:59Z", "2026-11-17T18:30:00Z"];
        assert_eq!(
            buckets(Bucket::Day, Tz::Asia__Kolkata, &kolkata),
            ["2026-11-17T00:00:00+05:30", "2026-11-18T00:00:00+05:30"]
        );
        assert_eq!(
            buckets(Bucket::Hour, Tz::Asia__Kolkata, &kolkata),
            ["2026-11-17T23:00:00+05:30", "2026-11-18T00:00:00+05:30"]
        );
        // Clocks show this hour twice, and it is two.
        let twice = ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"];
        assert_eq!(
            buckets(Bucket::Hour, Tz::Europe__Berlin, &twice),
            ["2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00"]
        );
        let months = ["2026-10-31T23:59:59Z", "2026-11-01T00:00:00Z"];
        assert_eq!(
            buckets(Bucket::Month, Tz::UTC, &months),
            ["2026-10-01T00:00:00+00:00", "2026-11-01T00:00:00+00:00"]
        );
        // 1 November 2026 is a Sunday.
        assert_eq!(
            buckets(Bucket::Week, Tz::UTC, &["2026-11-01T23:59:59Z", "2026-11-02T00:00:00Z"]),
            ["2026-10-26T00:00:00+00:00", "2026-11-02T00:00:00+00:00"]
        );
    }

    #[test]
    fn a_cost_of_which_nothing_is_known_is_not_zero() {
        assert_eq!(dollars(4_113_000, 2, 3).as_deref(), Some("0.004113"));
        assert_eq!(dollars(0, 0, 3).as_deref(), Some("0"));
        assert_eq!(dollars(0, 3, 3), None);
    }

    fn checked(query: serde_json::Value) -> Result<Checked, Problem> {
        let query = serde_json::from_value(query).unwrap();
        Checked::new(query, None, Timestamp(at("2026-11-25T00:00:00Z")))
    }

    #[test]
    fn every_invalid_member_of_a_question_is_named_at_once() {
        let problem = checked(json!({
            "from": "2026-11-26T00:00:00Z", "time_zone": "Mars/Base", "limit": 0, "order": "-cost",
            "measures": ["count", "p0(duration_ms)", "count", {"rate": "x", "name": "bucket"}, "median(duration_ms)"],
        }))
        .err()
        .unwrap();
        let errors = problem.into_more().errors;
        let places: Vec<_> = errors.iter().map(|error| error.pointer.as_str()).collect();
        assert_eq!(
            places,
            [
                "/from",
                "/time_zone",
                "/measures/1",
                "/measures/2",
                "/measures/3",
                "/measures/4",
                "/order",
                "/limit"
            ]
        );
        assert!(errors[6].detail.contains("allowed: count"), "{}", errors[6].detail);
    }

    #[test]
    fn days_become_weeks_and_what_the_limit_leaves_out_is_counted() {
        let checked = checked(json!({
            "from": "2026-11-16T00:00:00Z", "bucket": "week", "by": ["model"], "limit": 2,
            "measures": ["count", "p50(duration_ms)", "avg(duration_ms)", "sum(cost_usd)", {"rate": "model = \"x\""}],
        }))
        .unwrap();
        let day = |day: &str, model: &str, count: u64, us: i64| {
            let mut lengths = histogram::Histogram::default();
            (0..count).for_each(|_| lengths.add(us));
            Tally {
                unit: Some(at(day) / QUARTER_US / 96),
                by: vec![Some(model.to_owned())],
                count,
                rates: vec![1],
                sums: vec![us * i64::try_from(count).unwrap(), 2_000_000_000, 0],
                lengths: vec![lengths],
            }
        };
        assert_eq!(checked.question.sums, ["duration_us", "cost_nano", "cost_missing"]);
        let tallies = Tallies {
            tallies: vec![
                day("2026-11-18T00:00:00Z", "b", 1, 10_000),
                day("2026-11-16T00:00:00Z", "b", 3, 20_000),
                day("2026-11-16T00:00:00Z", "a", 5, 20_000),
                day("2026-11-23T00:00:00Z", "a", 7, 20_000),
            ],
            open: 0,
            from: crate::api::stats::StatsFrom::Rollup,
        };
        let (rows, other) = checked.rows(tallies.tallies);
        assert_eq!(other, Some(Others { groups: 1, count: 7 }));
        assert_eq!(rows[0]["model"], "a");
        let b = Value::Object(rows[1].clone());
        assert_eq!(b["bucket"], "2026-11-16T00:00:00+00:00");
        assert_eq!(b["count"], 4);
        assert_eq!(b["avg(duration_ms)"], 17.5);
        assert_eq!(b["sum(cost_usd)"], "4");
        assert_eq!(b["rate"]["k"], 2);
        assert_eq!(b["rate"]["value"], 0.5);
        assert_eq!(b["p50(duration_ms)"], 20.7);
    }

    #[test]
    fn a_comparison_says_what_differs_and_when_it_cannot() {
        let set = |errors: u64, n: u64, chat: u64| {
            let counts = |field: &str| match field {
                OUTCOME => BTreeMap::from([
                    (Some("ERROR:DEADLINE".to_owned()), errors),
                    (Some("RESPONSE_GIVEN".to_owned()), n - errors),
                ]),
                "surface" => BTreeMap::from([(Some("chat".to_owned()), chat), (Some("agent".to_owned()), n - chat)]),
                _ => BTreeMap::new(),
            };
            Set {
                side: Side {
                    n,
                    p50: None,
                    p95: None,
                    cost_usd: None,
                    cost_missing: 0,
                    failed_calls: share(0, n),
                },
                counts: [OUTCOME].into_iter().chain(MIX).map(counts).collect(),
            }
        };
        let (a, b) = (set(60, 4000, 4000), set(124, 4000, 3560));
        let shifts = mix(&a, &b);
        assert_eq!((shifts.len(), shifts[0].largest_shift), (1, 0.11));
        assert_eq!(
            says(&a, &b, &shifts),
            "B fails more often: 3.1 % against 1.5 % (+1.6 points, 95 %: 0.9 to 2.3; 4000 and 4000 decisions). The two had \
             different traffic: surface shifted by 11.0 points."
        );
        let compared = outcomes(&a, &b);
        assert_eq!(compared.len(), 2);
        assert!(compared[0].p.unwrap() < 0.001);
        assert!(says(&set(1, 29, 29), &b, &[]).starts_with("Too few to say: 29 and 4000 decisions"));
        assert!(says(&a, &a, &[]).starts_with("No difference of errors is shown"));
    }
}
