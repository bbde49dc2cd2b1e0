//! The store's contract, on both databases.
#![allow(clippy::unwrap_used)]

mod postgres;

#[path = "store/recording.rs"]
mod recording;
#[path = "store/support.rs"]
mod support;

/// One test for each database and contract function.
macro_rules! contract {
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

contract! {
    recording::a_decision_that_was_never_opened_is_inserted_whole,
    recording::an_opened_decision_is_closed_in_place,
}
