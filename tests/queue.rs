//! The queue of background runs, on both databases.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod postgres;

#[path = "queue/delivery.rs"]
mod delivery;
#[path = "queue/faults.rs"]
mod faults;
#[path = "queue/killed.rs"]
mod killed;
#[path = "queue/leaving.rs"]
mod leaving;
#[path = "queue/opening.rs"]
mod opening;
#[path = "queue/support.rs"]
mod support;

/// Generates one test per database and contract function.
macro_rules! contract {
    ($($module:ident :: $name:ident),+ $(,)?) => {
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::$module::$name(crate::support::TestQueue::sqlite()).await;
            })+
        }
        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::$module::$name(crate::support::TestQueue::postgres().await).await;
            })+
        }
    };
}

contract! {
    delivery::a_job_that_names_no_run_blocks_no_other,
    delivery::a_panic_ends_that_job_only,
    delivery::a_pushed_run_is_worked_on_at_once,
    delivery::a_run_pushed_by_another_process_is_found,
    delivery::a_thousand_runs_are_each_delivered_once_and_leave_nothing,
    delivery::two_queues_share_the_work,
    faults::a_locked_database_is_reported_and_recovers,
    faults::a_worker_that_ends_with_an_error_is_replaced,
    killed::an_idle_worker_costs_almost_nothing,
    killed::another_process_gets_the_jobs_of_a_killed_one,
    leaving::names_of_ended_workers_do_not_accumulate,
    leaving::shutdown_is_bounded,
    leaving::shutdown_finishes_runs_in_progress_and_leaves_the_rest_to_other_processes,
}
