//! Runs of agents: the engine with a scripted model, scripted tools and a clock that is moved by hand, on the real store
//! (REQUIREMENTS D and X). No test sleeps.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod postgres;

#[path = "agents/doom_loop.rs"]
mod doom_loop;
#[path = "agents/limits.rs"]
mod limits;
#[path = "agents/model.rs"]
mod model;
#[path = "agents/rig.rs"]
mod rig;
#[path = "agents/single.rs"]
mod single;
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
    single::a_run_is_on_the_record_before_it_begins_and_when_it_is_over,
}
