//! The store's contract, on both databases.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod postgres;

#[path = "store/audit.rs"]
mod audit;
#[path = "store/claims.rs"]
mod claims;
#[path = "store/content.rs"]
mod content;
#[path = "store/definitions.rs"]
mod definitions;
#[path = "store/faults.rs"]
mod faults;
#[path = "store/killed.rs"]
mod killed;
#[path = "store/leases.rs"]
mod leases;
#[path = "store/logged.rs"]
mod logged;
#[path = "store/migrating.rs"]
mod migrating;
#[path = "store/over.rs"]
mod over;
#[path = "store/quota.rs"]
mod quota;
#[path = "store/reading.rs"]
mod reading;
#[path = "store/recording.rs"]
mod recording;
#[path = "store/recovery.rs"]
mod recovery;
#[path = "store/runs.rs"]
mod runs;
#[path = "store/support.rs"]
mod support;
#[path = "store/triggers.rs"]
mod triggers;
#[path = "store/waiting.rs"]
mod waiting;

/// Generates one test per database and contract function.
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
    audit::the_database_refuses_to_change_what_was_entered,
    audit::an_effect_is_entered_before_it_is_sent_and_when_its_end_is_known,
    audit::what_only_reads_enters_nothing,
    audit::what_is_done_twice_is_entered_once,
    audit::what_recovery_ends_is_entered,
    audit::content_is_kept_as_the_records_keep_it,
    audit::every_tampering_is_found_and_named,
    logged::each_decision_is_one_line_of_the_log_with_what_matters,
    triggers::a_missing_or_changed_trigger_is_found_and_the_next_start_restores_and_enters_it,
    triggers::a_trigger_of_the_operators_own_is_no_finding_and_stays,
    audit::many_writers_make_one_chain,
    audit::a_key_may_be_changed,
    audit::what_people_decide_is_entered,
    audit::what_begins_without_an_answer_is_found,
    audit::what_begins_by_leave_that_nobody_gave_is_found,
    audit::each_word_that_settles_a_doubt_is_entered_and_the_last_counts,
    audit::a_part_of_a_commit_that_fails_enters_nothing,
    claims::a_claim_without_an_answer_gets_the_recovered_one,
    claims::an_expired_claim_is_made_anew,
    claims::of_fifty_claims_at_once_one_is_new,
    claims::the_same_key_with_another_body_is_a_mismatch,
    claims::thousands_of_expired_claims_are_all_pruned,
    content::full_keeps_the_words,
    content::hash_keeps_keyed_digests,
    content::none_keeps_no_word,
    definitions::a_change_makes_a_version_and_the_same_content_makes_none,
    definitions::versions_come_in_pages,
    definitions::a_change_of_another_version_than_the_current_one_is_a_conflict,
    definitions::of_twenty_changes_at_once_one_is_made,
    definitions::of_definitions_checked_beside_the_same_others_one_is_made,
    definitions::another_tenant_s_and_project_s_definitions_are_not_there,
    faults::a_close_that_failed_after_an_effect_is_finished_later,
    faults::a_full_queue_is_unavailable_at_once,
    faults::a_database_that_is_locked_at_start_holds_nobody_up,
    faults::a_locked_database_is_unavailable_in_bounded_time,
    faults::shutdown_writes_what_is_queued,
    killed::what_was_answered_survives_kill_9,
    leases::of_twenty_takes_at_once_one_succeeds,
    leases::a_run_is_taken_from_the_queue_and_from_the_dead,
    leases::a_lost_lease_writes_nothing,
    leases::leases_are_renewed_by_the_database_s_clock,
    leases::a_run_that_its_holder_ended_is_not_lost,
    leases::a_lease_that_is_given_up_is_taken_at_once,
    leases::what_waits_for_a_process_is_found,
    leases::tenants_and_their_users_take_turns,
    leases::a_run_that_no_process_returns_is_given_up,
    leases::a_run_that_is_handed_over_in_order_is_never_given_up,
    leases::an_append_that_nobody_heard_of_harms_nobody,
    leases::many_runs_at_once_do_not_stand_in_each_other_s_way,
    migrating::a_changed_migration_is_an_error,
    migrating::a_database_of_an_older_version_is_brought_up_and_keeps_its_rows,
    migrating::a_newer_database_is_an_error,
    migrating::many_may_start_at_once,
    migrating::migrating_is_told_and_done_once,
    migrating::the_views_speak_iso_times_and_milliseconds,
    over::nothing_that_is_tried_changes_a_run_that_is_over,
    over::what_was_cancelled_before_it_began_never_begins,
    reading::a_decision_reads_back_as_it_was_answered,
    reading::a_filter_finds_what_it_says,
    reading::a_page_is_bounded_in_bytes,
    reading::a_slow_query_is_told_so_and_does_not_make_the_store_look_away,
    reading::a_wrong_question_is_told_what_is_allowed,
    reading::an_open_decision_is_shown_as_open,
    reading::nobody_sees_another_s_rows,
    reading::pages_join_to_the_whole_list,
    reading::who_only_reads_changes_nothing,
    recording::a_decision_that_was_never_opened_is_inserted_whole,
    recording::a_nul_character_does_not_cost_the_record,
    recording::a_poison_row_does_not_fail_its_neighbours,
    recording::a_row_of_another_owner_is_not_overwritten,
    recording::an_intent_of_an_unknown_decision_is_refused,
    recording::an_opened_decision_is_closed_in_place,
    recording::closing_twice_leaves_one_record,
    recording::each_way_a_call_ends_has_its_state,
    recording::every_outcome_can_be_recorded,
    recording::json_is_kept_as_it_came,
    recording::many_at_once_are_all_recorded,
    recording::the_tables_refuse_lies,
    recovery::a_dead_process_is_recovered_by_the_next,
    recovery::a_living_process_keeps_its_rows,
    recovery::the_owner_s_word_takes_the_place_of_recovery_s,
    recovery::the_sweeper_recovers_without_a_restart,
    recovery::two_processes_recover_at_once,
    recovery::what_was_opened_unheard_is_closed_as_not_begun,
    runs::a_run_reads_back_as_it_was_written,
    runs::what_is_done_twice_is_done_once,
    runs::a_use_of_standing_leave_is_counted_once,
    runs::standing_leave_that_cannot_be_read_is_listed_and_taken_back,
    runs::standing_leave_for_many_long_addresses_is_kept,
    waiting::a_cancellation_is_not_lost_where_the_run_comes_to_wait,
    waiting::only_legal_transitions_come_of_whatever_is_tried,
    waiting::an_answer_stays_as_it_was_given,
    waiting::what_is_approved_in_time_has_time_to_begin,
    waiting::leave_that_nobody_gave_is_found,
    waiting::the_same_leave_given_twice_at_once_is_one,
    runs::a_run_ends_whole_or_not_at_all,
    runs::an_end_that_failed_is_written_later,
    runs::a_run_that_was_made_unheard_is_not_begun,
    runs::one_key_makes_one_run,
    runs::a_claim_holds_as_long_as_its_run,
    runs::a_request_that_makes_no_run_leaves_no_definitions,
    runs::a_page_of_runs_is_bounded_in_bytes,
    runs::a_paused_run_is_gone_on_with_once,
    runs::a_run_is_cancelled_where_it_stands,
    runs::nothing_begins_once_a_run_is_cancelled,
    runs::a_called_run_lives_under_its_caller_s_lease,
    runs::the_decisions_of_runs_outlive_their_process,
    runs::without_content_the_log_keeps_no_word_and_the_run_all,
    runs::the_table_of_runs_refuses_lies,
    runs::pages_of_runs_join_to_the_whole_list,
    runs::nobody_sees_another_s_runs,
    runs::runs_are_dropped_when_their_time_is_over,
    runs::threads_are_dropped_with_their_runs,
    runs::what_waits_in_a_thread_goes_on_in_its_order_whatever_the_clocks_say,
}
