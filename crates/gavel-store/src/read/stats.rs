//! Counts over many rows. They are read from quarters that were counted before; those that have changed since, the ends
//! of the asked time, and whatever quarters do not know, from the log. One statement does both, so that each row counts
//! once while quarters are counted.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use super::ReadOnly;
use super::filter::{self, DECISIONS, Field, Filter, Kind, List, TOOL_INVOCATIONS};
use super::select::Builder;
use crate::api::stats::{StatsFrom, StatsSource};
use crate::db::row::{Cell, Row};
use crate::domain::histogram::Histogram;
use crate::domain::ids::TenantId;
use crate::ports::records::QueryError;
use crate::ports::stats::{QUARTER_US, StatsQuestion, Tallies, Tally, Units};

/// What is counted of a log, and the table of its quarters, which has columns of the same names.
pub(crate) struct Counted {
    list: &'static LazyLock<List>,
    pub(crate) rollup: &'static str,
    /// The rows that have ended, and those that have not.
    ended: &'static str,
    open: &'static str,
    /// The fields that quarters are counted by.
    pub(crate) by: &'static [&'static str],
    /// Numbers that are added, with their value in a row of the log.
    pub(crate) sums: &'static [(&'static str, &'static str)],
    /// Durations, with the column of their histograms and their microseconds in a row of the log.
    pub(crate) lengths: &'static [(&'static str, &'static str, &'static str)],
}

const OWN: &str = "duration_us - COALESCE(model_us, 0) - COALESCE(tool_us, 0) - COALESCE(human_us, 0)";

static OF_DECISIONS: Counted = Counted {
    list: &DECISIONS,
    rollup: "stats_quarter",
    ended: "status = 'closed'",
    open: "status = 'open'",
    by: &[
        "surface",
        "agent_id",
        "definition_hash",
        "requested_model",
        "model",
        "decision_type",
        "outcome_category",
    ],
    sums: &[
        ("input_tokens", "input_tokens"),
        ("output_tokens", "output_tokens"),
        ("thought_tokens", "thought_tokens"),
        ("cached_tokens", "cached_tokens"),
        ("cost_nano", "cost_nano"),
        ("cost_missing", "CASE WHEN cost_nano IS NULL THEN 1 END"),
        ("duration_us", "duration_us"),
        ("model_us", "model_us"),
        ("tool_us", "tool_us"),
        ("human_us", "human_us"),
        ("own_us", OWN),
    ],
    lengths: &[
        ("duration_ms", "duration_hist", "duration_us"),
        ("model_ms", "model_hist", "model_us"),
        ("tool_ms", "tool_hist", "tool_us"),
        ("human_ms", "human_hist", "human_us"),
        ("own_ms", "own_hist", OWN),
    ],
};

static OF_CALLS: Counted = Counted {
    list: &TOOL_INVOCATIONS,
    rollup: "tool_stats_quarter",
    ended: "status <> 'started'",
    open: "status = 'started'",
    by: &["server", "tool", "tool_digest", "status", "error_code"],
    sums: &[
        ("argument_bytes", "argument_bytes"),
        ("result_bytes", "result_bytes"),
        ("duration_us", "duration_us"),
    ],
    lengths: &[("duration_ms", "duration_hist", "duration_us")],
};

/// Everything that is counted.
pub(crate) static COUNTED: [&Counted; 2] = [&OF_DECISIONS, &OF_CALLS];

/// The most groups of an answer.
const MAX_GROUPS: usize = 20_000;

/// What is asked, as the log knows it.
struct Asked {
    of: &'static Counted,
    filters: Vec<Filter>,
    rates: Vec<Vec<Filter>>,
    by: Vec<&'static Field>,
    sums: Vec<&'static (&'static str, &'static str)>,
    lengths: Vec<&'static (&'static str, &'static str, &'static str)>,
}

/// Those of a list of which each name is one. `field`: where the names were given.
fn chosen<T>(
    field: &'static str,
    all: impl Iterator<Item = &'static T>,
    name: fn(&T) -> &'static str,
    names: &[String],
) -> Result<Vec<&'static T>, QueryError> {
    let all: Vec<_> = all.collect();
    let one = |asked: &String| {
        let found = all.iter().copied().find(|one| name(one) == asked);
        found.ok_or_else(|| {
            let allowed: Vec<_> = all.iter().copied().map(name).collect();
            let detail = format!("found {asked:?}; allowed are {}", allowed.join(", "));
            QueryError::Invalid { field, detail }
        })
    };
    names.iter().map(one).collect()
}

impl Asked {
    fn new(of: &'static Counted, tenant: &TenantId, question: &StatsQuestion) -> Result<Self, QueryError> {
        let list: &'static List = of.list;
        let user = question.user.as_ref();
        let filters = super::filters(list, tenant, vec![], user, question.filter.as_deref())?;
        let rate = |rate: &String| {
            filter::parse(list, rate).map_err(|error| match error {
                QueryError::Invalid { detail, .. } => QueryError::Invalid {
                    field: "measures",
                    detail: format!("rate {rate:?}: {detail}"),
                },
                other => other,
            })
        };
        let rates = question.rates.iter().map(rate).collect::<Result<Vec<_>, _>>()?;
        super::hides_from_users(user.is_some(), rates.iter().flatten())?;
        let divides = |field: &&Field| !field.is_content && !matches!(field.kind, Kind::Time | Kind::Duration);
        let known = list.fields.iter().filter(divides);
        Ok(Self {
            of,
            filters,
            rates,
            by: chosen("by", known, |field| field.name, &question.by)?,
            sums: chosen("measures", of.sums.iter(), |(name, _)| name, &question.sums)?,
            lengths: chosen("measures", of.lengths.iter(), |(name, ..)| name, &question.lengths)?,
        })
    }

    /// Whether quarters know everything that it asks for.
    fn is_of_quarters(&self) -> bool {
        let known = |field: &Field| field.sql == "tenant" || self.of.by.contains(&field.sql);
        let knows = |filter: &Filter| !filter.has_call() && filter.terms().iter().all(|term| known(&term.field));
        self.filters.iter().chain(self.rates.iter().flatten()).all(knows) && self.by.iter().all(|field| known(field))
    }

    /// A SELECT of quarters, or of rows of the log, each as a group of its own.
    fn rows(&self, builder: &mut Builder, units: Option<&Units>, from: &str, time: &str) -> String {
        let in_log = from != self.of.rollup;
        let quarter = if in_log { "created_at / 900000000" } else { "quarter" };
        let mut selected = format!(
            "{} AS unit",
            units.map_or_else(|| "0".to_owned(), |units| unit(units, quarter))
        );
        let mut add = |value: String, kind: &str, at: usize| {
            // Writing to a String cannot fail.
            let _ = write!(selected, ", {value} AS {kind}{at}");
        };
        for (at, field) in self.by.iter().enumerate() {
            add(as_text(field), "k", at);
        }
        let n = if in_log { "1" } else { "n" };
        add(n.to_owned(), "n", 0);
        for (at, rate) in self.rates.iter().enumerate() {
            let all: Vec<_> = rate.iter().map(|filter| builder.filter(filter)).collect();
            let holds = if all.is_empty() {
                "TRUE".to_owned()
            } else {
                all.join(" AND ")
            };
            add(format!("CASE WHEN {holds} THEN {n} END"), "r", at);
        }
        for (at, (name, value)) in self.sums.iter().enumerate() {
            add((*if in_log { value } else { name }).to_owned(), "s", at);
        }
        for (at, (_, name, value)) in self.lengths.iter().enumerate() {
            add(if in_log { class(value) } else { (*name).to_owned() }, "h", at);
        }
        let mut conditions: Vec<_> = self.filters.iter().map(|filter| builder.filter(filter)).collect();
        conditions.push(time.to_owned());
        if in_log {
            conditions.push(self.of.ended.to_owned());
        }
        format!("SELECT {selected} FROM {from} WHERE {}", conditions.join(" AND "))
    }

    /// The groups of these rows.
    fn grouped(&self, rows: &[String]) -> String {
        let keys: Vec<_> = (0..self.by.len()).map(|at| format!("k{at}")).collect();
        let sums = |kind: char, count: usize| {
            (0..count).map(move |at| format!("CAST(SUM({kind}{at}) AS BIGINT) AS {kind}{at}"))
        };
        let hists = (0..self.lengths.len()).map(|at| format!("string_agg(h{at}, ' ') AS h{at}"));
        let selected = ["unit".to_owned()]
            .into_iter()
            .chain(keys.iter().cloned())
            .chain(sums('n', 1));
        let selected = selected
            .chain(sums('r', self.rates.len()))
            .chain(sums('s', self.sums.len()));
        let selected: Vec<_> = selected.chain(hists).collect();
        let keys: String = keys.iter().map(|key| format!(", {key}")).collect();
        format!(
            "SELECT {} FROM ({}) AS counted GROUP BY unit{keys} LIMIT {}",
            selected.join(", "),
            rows.join(" UNION ALL "),
            MAX_GROUPS + 1
        )
    }

    fn tally(&self, row: &Row, units: Option<&Units>) -> Result<Tally, sqlx::Error> {
        let int = |kind: char, at: usize| match row.peek(&format!("{kind}{at}")) {
            Some(Cell::Int(int)) => *int,
            _ => 0,
        };
        let text = |kind: char, at: usize| match row.peek(&format!("{kind}{at}")) {
            Some(Cell::Text(text)) => Some(text.as_str()),
            _ => None,
        };
        let count = |kind, at| u64::try_from(int(kind, at)).unwrap_or_default();
        let hist = |at| {
            Histogram::parse(text('h', at).unwrap_or_default())
                .ok_or_else(|| sqlx::Error::Decode("a histogram that gavel never writes".into()))
        };
        let unit = match row.peek("unit") {
            Some(Cell::Int(unit)) if units.is_some() => Some(*unit),
            _ => None,
        };
        Ok(Tally {
            unit,
            by: (0..self.by.len()).map(|at| text('k', at).map(str::to_owned)).collect(),
            count: count('n', 0),
            rates: (0..self.rates.len()).map(|at| count('r', at)).collect(),
            sums: (0..self.sums.len()).map(|at| int('s', at)).collect(),
            lengths: (0..self.lengths.len()).map(hist).collect::<Result<_, _>>()?,
        })
    }
}

/// The value of a field as text.
fn as_text(field: &Field) -> String {
    let sql = field.sql;
    match field.kind {
        Kind::Success => format!("CASE WHEN {sql} = 'completed' THEN 'true' ELSE 'false' END"),
        Kind::Bool => format!("CASE WHEN {sql} THEN 'true' WHEN NOT {sql} THEN 'false' END"),
        Kind::Number => format!("CAST({sql} AS TEXT)"),
        _ => sql.to_owned(),
    }
}

/// The unit that a quarter is in.
fn unit(units: &Units, quarter: &str) -> String {
    let (last, before) = units.offsets.split_last().unwrap_or((&(0, 0), &[]));
    let cases = before.iter().fold(String::new(), |mut cases, (offset, until)| {
        // Writing to a String cannot fail.
        let _ = write!(cases, "WHEN {quarter} < {until} THEN {offset} ");
        cases
    });
    let offset = match cases.is_empty() {
        true => last.0.to_string(),
        false => format!("CASE {cases}ELSE {} END", last.0),
    };
    format!("({quarter} + {offset}) / {}", units.quarters)
}

/// The histogram of one duration: found by halves, since SQLite has no logarithm.
fn class(us: &str) -> String {
    fn half(us: &str, starts: &[i64], first: usize) -> String {
        if starts.is_empty() {
            return format!("'{first}:1'");
        }
        let middle = starts.len() / 2;
        format!(
            "CASE WHEN {us} < {} THEN {} ELSE {} END",
            starts[middle],
            half(us, &starts[..middle], first),
            half(us, &starts[middle + 1..], first + middle + 1)
        )
    }
    format!(
        "CASE WHEN {us} IS NOT NULL THEN {} END",
        half(&format!("({us})"), Histogram::starts(), 0)
    )
}

/// Rows of the log in this time.
fn within(from: i64, to: i64) -> String {
    format!("created_at >= {from} AND created_at < {to}")
}

impl ReadOnly {
    pub(crate) async fn tally(&self, tenant: &TenantId, question: &StatsQuestion) -> Result<Tallies, QueryError> {
        let of = match question.source {
            StatsSource::Decisions => &OF_DECISIONS,
            StatsSource::ToolInvocations => &OF_CALLS,
        };
        let asked = Asked::new(of, tenant, question)?;
        let mut builder = Builder::new(self.dialect);
        let (units, log, (from, to)) = (question.units.as_ref(), of.list.name, question.time);
        let (first, last) = (
            from.div_euclid(QUARTER_US) + i64::from(from % QUARTER_US != 0),
            to.div_euclid(QUARTER_US),
        );
        let is_of_quarters = first < last && asked.is_of_quarters();
        let mut rows = Vec::new();
        if is_of_quarters {
            let whole = format!("quarter >= {first} AND quarter < {last}");
            let changed = format!(
                "EXISTS (SELECT 1 FROM stats_dirty dirty WHERE dirty.tenant = {0}.tenant AND dirty.quarter = {0}.quarter)",
                of.rollup
            );
            let unchanged = format!("{whole} AND NOT {changed}");
            rows.push(asked.rows(&mut builder, units, of.rollup, &unchanged));
            let tenant = builder.bind(tenant.into());
            let dirty = format!(
                "(SELECT DISTINCT quarter AS changed FROM stats_dirty WHERE tenant = {tenant} AND {whole}) AS dirty \
                 CROSS JOIN {log}"
            );
            let time = "created_at >= changed * 900000000 AND created_at < (changed + 1) * 900000000";
            rows.push(asked.rows(&mut builder, units, &dirty, time));
        }
        let ends = match is_of_quarters {
            true => vec![(from, first * QUARTER_US), (last * QUARTER_US, to)],
            false => vec![(from, to)],
        };
        for (from, to) in ends.into_iter().filter(|(from, to)| from < to) {
            rows.push(asked.rows(&mut builder, units, log, &within(from, to)));
        }
        let tallies = self.groups(&asked, &rows, builder, units).await?;
        if tallies.len() > MAX_GROUPS {
            return Err(QueryError::Invalid {
                field: "by",
                detail: format!(
                    "gives more than {MAX_GROUPS} groups; ask for fewer fields, a longer bucket or less time"
                ),
            });
        }
        let mut builder = Builder::new(self.dialect);
        let mut conditions: Vec<_> = asked.filters.iter().map(|filter| builder.filter(filter)).collect();
        conditions.extend([within(from, to), of.open.to_owned()]);
        let open = format!("SELECT COUNT(*) FROM {log} WHERE {}", conditions.join(" AND "));
        Ok(Tallies {
            tallies,
            open: self.one(open, builder.values).await?.unwrap_or_default(),
            from: match is_of_quarters {
                true => StatsFrom::Rollup,
                false => StatsFrom::Log,
            },
        })
    }

    /// Counts a quarter of a tenant from the log, by everything that quarters are counted by.
    pub(crate) async fn count_quarter(
        &self,
        of: &'static Counted,
        tenant: &TenantId,
        quarter: i64,
    ) -> Result<Vec<Tally>, QueryError> {
        let question = StatsQuestion {
            by: of.by.iter().map(|name| (*name).to_owned()).collect(),
            sums: of.sums.iter().map(|(name, _)| (*name).to_owned()).collect(),
            lengths: of.lengths.iter().map(|(name, ..)| (*name).to_owned()).collect(),
            ..StatsQuestion::default()
        };
        let asked = Asked::new(of, tenant, &question)?;
        let mut builder = Builder::new(self.dialect);
        let time = within(quarter * QUARTER_US, (quarter + 1) * QUARTER_US);
        let rows = [asked.rows(&mut builder, None, of.list.name, &time)];
        self.groups(&asked, &rows, builder, None).await
    }

    async fn groups(
        &self,
        asked: &Asked,
        rows: &[String],
        builder: Builder,
        units: Option<&Units>,
    ) -> Result<Vec<Tally>, QueryError> {
        let mut tallies = Vec::new();
        if !rows.is_empty() {
            self.rows(asked.grouped(rows), builder.values, &mut |row| {
                tallies.push(asked.tally(&row, units)?);
                Ok(ControlFlow::Continue(()))
            })
            .await?;
        }
        // Without `by` and units the one group of no rows has no count.
        tallies.retain(|tally| tally.count > 0);
        Ok(tallies)
    }
}
