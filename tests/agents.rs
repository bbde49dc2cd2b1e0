//! Runs of agents: the engine with a scripted model, scripted tools and a manually advanced clock, on the real store
//! (REQUIREMENTS D and X). No test sleeps.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod postgres;

#[path = "agents/any.rs"]
mod any;
#[path = "agents/leave.rs"]
mod approvals;
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
    cancelled::a_cancelled_run_and_those_it_called_keep_what_they_have,
    crash::a_flow_that_dies_anywhere_ends_as_if_nothing_had_been,
    crash::a_run_that_dies_anywhere_ends_as_if_nothing_had_been,
    crash::a_tool_without_a_key_is_never_called_twice,
    in_doubt::a_doubt_within_a_called_agent_is_settled_there,
    in_doubt::what_a_person_says_happened_is_not_done_again,
    approvals::a_called_agent_that_waits_is_waited_for,
    approvals::a_question_goes_with_its_call,
    approvals::a_question_goes_with_its_run,
    approvals::a_run_of_a_thread_that_cannot_go_on_has_failed,
    approvals::a_doubt_can_be_settled_whatever_became_of_its_run,
    approvals::a_doubt_is_settled_when_its_run_is_over,
    approvals::a_question_that_nobody_answers_is_over_in_time,
    approvals::a_run_never_waits_for_what_nobody_was_asked,
    approvals::an_answer_that_comes_while_another_is_heard_is_heard_too,
    approvals::of_fifty_who_answer_at_once_one_wins,
    approvals::several_questions_of_a_turn_are_answered_one_by_one,
    approvals::leave_that_is_over_before_the_call_begins_does_not_count,
    approvals::a_tool_that_changes_while_another_runs_is_not_called,
    approvals::what_was_approved_is_not_sent_again_to_a_tool_that_has_changed,
    approvals::what_let_a_call_begin_has_to_stand_when_it_is_sent_again,
    approvals::what_was_begun_and_not_sent_is_logged_so_while_its_neighbour_waits,
    approvals::a_server_that_is_away_takes_nobodys_word_away,
    approvals::standing_leave_is_for_the_tool_as_it_was,
    approvals::standing_leave_is_for_the_tool_as_its_server_has_it,
    approvals::what_is_approved_is_what_was_shown_or_nothing,
    approvals::standing_leave_that_is_taken_back_lets_nothing_more_begin,
    approvals::reading_by_standing_leave_is_counted_and_ends_with_it,
    approvals::what_a_crash_cut_off_is_not_sent_again_by_leave_that_was_taken_back,
    approvals::what_was_cancelled_before_it_could_be_sent_is_not_in_doubt,
    approvals::what_needs_leave_waits_for_it_and_runs_once,
    approvals::what_only_reads_begins_with_its_leave_alone,
    approvals::what_only_reads_is_never_in_doubt,
    approvals::whoever_dies_an_approved_call_is_never_made_twice,
    single::what_a_running_run_has_used_up_is_known,
    single::a_run_is_on_the_record_before_it_begins_and_when_it_is_over,
}
