//! `gavel decisions`: the decision log, read only.

mod list;
mod show;
mod tail;

use super::exit::Exit;
use super::gavel::Gavel;
use crate::app::Work;
use crate::config::Config;

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

pub(super) async fn run(verb: Verb, config: Config) -> anyhow::Result<Exit> {
    let tenant = match &verb {
        Verb::List(args) => &args.tenant,
        Verb::Show(args) => &args.tenant,
        Verb::Tail(args) => &args.tenant,
    };
    let gavel = Gavel::start(config, Work::Read, tenant.clone(), None).await?;
    gavel
        .talk(async |gavel| match &verb {
            Verb::List(args) => list::run(args, gavel).await,
            Verb::Show(args) => show::run(args, gavel).await,
            Verb::Tail(args) => tail::run(args, gavel).await,
        })
        .await
}
