//! Runs of agents: the engine with a scripted model, scripted tools and a manually advanced clock, on the real store.
//! No test sleeps.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod postgres;

#[path = "agents/any.rs"]
mod any;
#[path = "agents/approvals.rs"]
mod approvals;
#[path = "agents/cancelled.rs"]
mod cancelled;
#[path = "agents/crash.rs"]
mod crash;
#[path = "agents/doom_loop.rs"]
mod doom_loop;
#[path = "agents/flows.rs"]
mod flows;
#[path = "agents/fresh.rs"]
mod fresh;
#[path = "agents/in_doubt.rs"]
mod in_doubt;
#[path = "agents/lease.rs"]
mod lease;
#[path = "agents/limits.rs"]
mod limits;
#[path = "agents/lost.rs"]
mod lost;
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
#[path = "agents/until.rs"]
mod until;

/// Generates one test per database and function.
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
    lost::progress_resets_the_count_of_lost_processes,
    lost::a_run_without_progress_is_ended_by_the_process_after_the_third,
    lost::the_end_of_a_lost_run_is_repeated_until_the_store_ends_it,
    lost::the_calls_of_a_lost_run_are_in_doubt_and_it_continues_after_them,
    lost::a_lost_flow_continues_with_its_step,
    lost::the_time_limit_counts_the_work_of_lost_processes,
    cancelled::a_cancelled_run_and_its_called_runs_keep_their_results,
    crash::a_flow_whose_process_dies_at_any_write_ends_as_if_undisturbed,
    crash::a_run_whose_process_dies_at_any_write_ends_as_if_undisturbed,
    crash::a_tool_without_a_key_is_never_called_twice,
    fresh::a_run_that_has_ended_is_known_as_the_store_has_it,
    fresh::a_run_whose_creator_dies_at_any_write_ends_as_if_undisturbed,
    fresh::a_run_with_one_read_is_read_from_nowhere_and_written_twice_after_its_creation,
    in_doubt::an_in_doubt_call_of_a_called_agent_is_settled_in_that_agent,
    in_doubt::a_call_that_a_person_reports_as_happened_is_not_repeated,
    approvals::a_called_agent_that_waits_for_approval_suspends_its_callers,
    approvals::a_rule_can_require_approval_for_a_call_of_an_agent,
    approvals::a_rule_can_require_approval_for_a_step_or_deny_it,
    approvals::an_approval_request_ends_with_its_call,
    approvals::an_approval_request_ends_with_its_run,
    approvals::a_run_of_a_thread_that_cannot_continue_fails,
    approvals::an_in_doubt_action_can_be_settled_whatever_happened_to_its_run,
    approvals::an_in_doubt_action_can_be_settled_only_after_its_run_has_ended,
    approvals::an_unanswered_approval_request_expires,
    approvals::a_run_never_waits_for_a_request_that_was_not_made,
    approvals::an_answer_that_arrives_while_another_is_read_is_read_too,
    approvals::of_fifty_concurrent_answers_exactly_one_wins,
    approvals::several_approval_requests_of_a_turn_are_resolved_separately,
    approvals::an_approval_that_expires_before_the_call_starts_does_not_count,
    approvals::an_approved_tool_that_changes_while_another_runs_is_not_called,
    approvals::an_approved_call_is_not_sent_again_to_a_changed_tool,
    approvals::a_call_is_sent_again_only_while_what_allowed_it_is_still_valid,
    approvals::a_call_that_could_not_be_sent_is_logged_as_such_while_its_neighbor_waits,
    approvals::an_unavailable_server_discards_no_resolution,
    approvals::a_grant_does_not_cover_a_changed_tool,
    approvals::a_grant_does_not_cover_a_tool_that_changed_without_notice,
    approvals::an_approval_does_not_cover_a_row_that_was_changed_in_the_database,
    approvals::no_call_starts_under_a_revoked_grant,
    approvals::reads_under_a_grant_are_counted_and_stop_when_it_is_revoked,
    approvals::an_interrupted_call_is_not_sent_again_under_a_revoked_grant,
    approvals::a_call_cancelled_before_it_could_be_sent_is_not_in_doubt,
    approvals::a_call_that_requires_approval_waits_for_it_and_runs_once,
    approvals::a_read_that_requires_approval_starts_only_with_it,
    approvals::a_read_is_never_in_doubt,
    approvals::an_approved_call_is_never_made_twice_whichever_process_dies,
    single::steps_and_tokens_of_a_running_run_are_known,
    single::a_run_is_recorded_before_it_starts_and_when_it_has_ended,
    until::a_model_call_ends_at_the_deadline_and_no_other_follows,
    until::a_tool_call_ends_at_the_deadline_and_no_other_follows,
    until::an_approval_request_expires_with_the_deadline_of_its_run,
    until::an_approved_call_does_not_start_after_the_deadline,
    until::a_child_run_has_the_deadline_of_its_parent,
    until::a_flow_is_paused_by_its_deadline_and_does_not_fail,
    until::a_resumed_run_keeps_its_deadline,
    until::a_run_that_starts_after_its_deadline_begins_nothing,
}
