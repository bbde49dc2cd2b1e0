//! Statistics of the logs: `POST /v1/stats/query`, five questions with names, and the comparison of two sets.

use super::answer::Json;
use super::error::Error;
use super::query::{Fields, Parameters};
use super::request::{Ctx, Given, Query, RowsOf, Sent};
use crate::api::stats::{Bucket, CompareQuery, Comparison, Statistics, StatsQuery};
use crate::http::routes::operations;
use crate::surfaces::stats::{MOST_ROWS, Named, ROWS};

operations! {
    queryStatistics = query: [QueryTooSlow];
    getOutcomes = outcomes: [QueryTooSlow];
    getLatency = latency: [QueryTooSlow];
    getToolStatistics = tools: [QueryTooSlow];
    getCost = cost: [QueryTooSlow];
    getModels = models: [QueryTooSlow];
    compareDecisions = compare: [QueryTooSlow];
}

impl Given for StatsQuery {
    const ABOUT: &'static str = "The question.";
    const EXAMPLE: &'static str = r#"{
        "from": "2026-11-18T00:00:00Z",
        "to": "2026-11-25T00:00:00Z",
        "time_zone": "Asia/Kolkata",
        "bucket": "day",
        "by": ["model"],
        "filter": "surface = \"chat\"",
        "measures": ["count", {"rate": "outcome_category = \"ERROR:*\"", "name": "failed"}, "p95(duration_ms)"],
        "order": "-count"
    }"#;
}

impl Given for CompareQuery {
    const ABOUT: &'static str = "The two sets.";
    const EXAMPLE: &'static str = r#"{
        "a": "requested_model = \"gemini-3.6-flash\"",
        "b": "requested_model = \"gemini-3.8-flash\""
    }"#;
}

/// What is given to a question with a name.
pub(super) struct Asked(StatsQuery);

impl Parameters for Asked {
    fn read(fields: &mut Fields<'_>) -> Self {
        let zone = "The IANA name of the zone of days, weeks and months; absent: UTC.";
        Self(StatsQuery {
            from: fields.time("from", "From this time on; absent: 7 days before `to`."),
            to: fields.time("to", "Before this time; absent: now."),
            by: fields
                .texts("by", "Also by these fields, separated by commas.")
                .unwrap_or_default(),
            time_zone: fields.text("time_zone", zone),
            bucket: fields.name("bucket", "One row for each length of time.", Bucket::NAMES),
            filter: fields.text("filter", "Only these rows, as in lists."),
            order: fields.text("order", "A member of the rows; with `-` from the greatest on."),
            limit: fields.up_to("limit", "The most rows.", MOST_ROWS, Some(ROWS)),
            ..StatsQuery::default()
        })
    }
}

/// Counts, shares, percentiles and sums.
///
/// Of decisions or tool calls, by time and fields. A user asks about their own rows; a service, or a user with the role
/// `analyst`, about those of the tenant.
#[utoipa::path(post, path = "/v1/stats/query")]
pub(super) async fn query(
    ctx: Ctx,
    RowsOf(user): RowsOf,
    Sent(query): Sent<StatsQuery>,
) -> Result<Json<Statistics>, Error> {
    Ok(Json(ctx.stats.ask(&ctx.caller, user, query).await?))
}

/// Questions with a name: the route of each and its path.
macro_rules! named {
    ($($(#[$about:meta])+ $route:ident = $path:literal: $named:ident;)+) => {
        $($(#[$about])+
        #[utoipa::path(get, path = $path)]
        pub(super) async fn $route(
            ctx: Ctx,
            RowsOf(user): RowsOf,
            Query(Asked(given)): Query<Asked>,
        ) -> Result<Json<Statistics>, Error> {
            let answer = ctx.stats.ask(&ctx.caller, user, Named::$named.narrowed(given)).await;
            // They are parameters here, not members of a body.
            answer.map(Json).map_err(|problem| problem.of_parameters().into())
        })+
    };
}

named! {
    /// How decisions ended.
    ///
    /// A fixed question: `count` by `outcome_category`.
    outcomes = "/v1/stats/outcomes": Outcomes;
    /// Where the time of decisions went.
    ///
    /// A fixed question: p50 and p95 of all of it, and of models, tools, people and gavel itself.
    latency = "/v1/stats/latency": Latency;
    /// How tools did.
    ///
    /// A fixed question about tool calls: count, failures, p50 and p95, by `server` and `tool`.
    tools = "/v1/stats/tools": Tools;
    /// What models cost.
    ///
    /// A fixed question: cost and tokens by the model that answered. `missing.cost` counts decisions whose cost is unknown.
    cost = "/v1/stats/cost": Cost;
    /// Which model answered for which.
    ///
    /// A fixed question: count, errors and the models' time, by `requested_model` and `model`.
    models = "/v1/stats/models": Models;
}

/// Compares two sets of decisions.
///
/// Outcomes with the interval of each difference, durations, cost, failed calls, and how the traffic itself differed.
#[utoipa::path(post, path = "/v1/stats/compare")]
pub(super) async fn compare(
    ctx: Ctx,
    RowsOf(user): RowsOf,
    Sent(query): Sent<CompareQuery>,
) -> Result<Json<Comparison>, Error> {
    Ok(Json(ctx.stats.compare(&ctx.caller, user, query).await?))
}
