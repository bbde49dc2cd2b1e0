//! `gavel decisions`: the decision log, read only.

mod list;
mod show;
mod tail;

use std::sync::Arc;

use anyhow::Context;
use secrecy::ExposeSecret;

use super::exit::Exit;
use super::operator;
use crate::adapters::store::ReadOnly;
use crate::config::Resolved;
use crate::surfaces::caller::Caller;
use crate::surfaces::decisions::DecisionQueries;

pub(super) use self::show::call;

/// The commands of `gavel decisions`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// List decisions, newest first
    List(list::Args),
    /// Show one decision with its tool calls
    Show(show::Args),
    /// Print new decisions as they are made
    Tail(tail::Args),
}

const FILTERS: &str = "\
A filter is FIELD OP \"VALUE\", joined by AND. Fields: decision_type, outcome_category, intent, user_id, \
conversation_id, surface, model, status, created_at, duration_ms, iterations. Operators: = != < <= > >=. \
A * at the end of a value matches every ending.";

/// The decision log and the caller who reads it.
struct Reader {
    queries: DecisionQueries,
    caller: Caller,
}

pub(super) async fn run(verb: Verb, resolved: Resolved) -> anyhow::Result<Exit> {
    let tenant = match &verb {
        Verb::List(args) => &args.tenant,
        Verb::Show(args) => &args.tenant,
        Verb::Tail(args) => &args.tenant,
    };
    let caller = operator::caller(tenant.clone(), None);
    let record = ReadOnly::open(resolved.config.database_url.expose_secret()).await;
    let record = Arc::new(record.context("the database cannot be read")?);
    let reader = Reader {
        queries: DecisionQueries::new(record.clone()),
        caller,
    };
    let read = match verb {
        Verb::List(args) => list::run(args, &reader).await,
        Verb::Show(args) => show::run(&args, &reader).await,
        Verb::Tail(args) => tail::run(args, &reader).await,
    };
    record.close().await;
    read
}
