//! Runs of agents: the engine with a scripted model, scripted tools and a clock that is moved by hand, on the real store
//! (REQUIREMENTS D and X). No test sleeps.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod postgres;

#[path = "agents/any.rs"]
mod any;
#[path = "agents/cancelled.rs"]
mod cancelled;
#[path = "agents/crash.rs"]
mod crash;
#[path = "agents/doom_loop.rs"]
mod doom_loop;
#[path = "agents/flows.rs"]
mod flows;
#[path = "agents/in_doubt.rs"]
mod in_doubt;
#[path = "agents/lease.rs"]
mod lease;
#[path = "agents/limits.rs"]
mod limits;
#[path = "agents/model.rs"]
mod model;
#[path = "agents/rig.rs"]
mod rig;
#[path = "agents/single.rs"]
mod single;
#[path = "agents/sub_agents.rs"]
mod sub_agents;
#[path = "store/support.rs"]
#[allow(dead_code)]
mod support;
#[path = "agents/tools.rs"]
mod tools;

/// One test for each database and function.
macro_rules! on_both_databases {
    ($($module:ident :: $name:ident),+ $(,)?) => {
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::$module::$name(crate::support::TestDb::sqlite().await).await;
            })+
        }
        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::$module::$name(crate::support::TestDb::postgres().await).await;
            })+
        }
    };
}

on_both_databases! {
    cancelled::a_cancelled_run_and_those_it_called_keep_what_they_have,
    crash::a_flow_that_dies_anywhere_ends_as_if_nothing_had_been,
    crash::a_run_that_dies_anywhere_ends_as_if_nothing_had_been,
    crash::a_tool_without_a_key_is_never_called_twice,
    in_doubt::a_doubt_within_a_called_agent_is_settled_there,
    in_doubt::what_a_person_says_happened_is_not_done_again,
    single::a_run_is_on_the_record_before_it_begins_and_when_it_is_over,
}
