//! The store's contract, on both databases.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod postgres;

#[path = "store/audit.rs"]
mod audit;
#[path = "store/claims.rs"]
mod claims;
#[path = "store/commits.rs"]
mod commits;
#[path = "store/content.rs"]
mod content;
#[path = "store/definitions.rs"]
mod definitions;
#[path = "store/ended.rs"]
mod ended;
#[path = "store/executing.rs"]
mod executing;
#[path = "store/faults.rs"]
mod faults;
#[path = "store/fit.rs"]
mod fit;
#[path = "store/kept.rs"]
mod kept;
#[path = "store/killed.rs"]
mod killed;
#[path = "store/leases.rs"]
mod leases;
#[path = "store/logged.rs"]
mod logged;
#[path = "store/migrating.rs"]
mod migrating;
#[path = "store/planning.rs"]
mod planning;
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
#[path = "store/settling.rs"]
mod settling;
#[path = "store/stats.rs"]
mod stats;
#[path = "store/support.rs"]
mod support;
#[path = "store/triggers.rs"]
mod triggers;
#[path = "store/views.rs"]
mod views;
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
    stats::statistics_equal_a_naive_count,
    stats::what_changes_while_it_is_counted_counts_once,
    stats::a_question_names_what_it_may_ask,
    fit::a_database_without_room_is_refused_before_anything_runs,
    audit::the_database_refuses_to_change_entries,
    audit::an_effect_is_entered_before_it_is_sent_and_when_its_outcome_is_known,
    audit::a_read_makes_no_entry,
    audit::a_repeated_commit_is_entered_once,
    audit::a_call_ended_by_recovery_is_entered,
    audit::content_is_kept_according_to_records_content,
    audit::every_tampering_is_found_and_named,
    audit::the_rows_of_one_decision_are_verified_without_the_others,
    logged::each_decision_is_one_log_line_with_its_key_fields,
    triggers::a_missing_or_changed_trigger_is_found_and_the_next_start_restores_and_enters_it,
    triggers::an_operators_own_trigger_is_not_a_finding_and_stays,
    audit::many_writers_make_one_chain,
    audit::a_key_may_be_changed,
    audit::decisions_of_people_are_entered,
    audit::a_call_started_without_an_approval_is_found,
    audit::a_call_started_under_a_forged_grant_is_found,
    audit::each_settlement_is_entered_and_the_last_counts,
    audit::a_part_of_a_commit_that_fails_enters_nothing,
    claims::a_claim_without_an_answer_gets_the_recovered_one,
    claims::an_expired_key_can_be_claimed_again,
    claims::of_fifty_claims_at_once_one_is_new,
    claims::the_same_key_with_another_body_is_a_mismatch,
    claims::thousands_of_expired_claims_are_all_pruned,
    content::full_keeps_the_text,
    content::hash_keeps_keyed_digests,
    content::none_keeps_no_text,
    content::what_models_were_asked_with_is_kept_once,
    content::texts_of_a_decision_that_was_refused_are_written_with_the_next,
    definitions::a_change_makes_a_version_and_identical_content_does_not,
    definitions::versions_come_in_pages,
    definitions::a_change_of_an_outdated_version_is_a_conflict,
    definitions::of_twenty_concurrent_changes_one_succeeds,
    definitions::of_definitions_checked_against_the_same_others_one_is_stored,
    definitions::definitions_of_another_tenant_or_project_are_not_found,
    faults::a_close_that_failed_after_an_effect_is_finished_later,
    faults::a_full_queue_is_unavailable_at_once,
    faults::a_database_that_is_locked_at_start_does_not_delay_the_start,
    faults::a_locked_database_is_unavailable_in_bounded_time,
    faults::shutdown_writes_queued_records,
    kept::old_rows_are_deleted_and_their_counts_stay,
    kept::an_erasure_leaves_no_text_of_a_user_and_all_of_the_others,
    killed::an_answered_decision_survives_kill_9,
    leases::of_twenty_concurrent_claims_one_succeeds,
    leases::a_run_is_claimed_from_the_queue_and_from_dead_processes,
    leases::a_process_with_a_lost_lease_writes_nothing,
    leases::leases_are_renewed_by_the_database_s_clock,
    leases::a_run_that_its_holder_ended_is_not_lost,
    leases::a_released_lease_is_claimed_at_once,
    leases::runs_that_wait_for_a_process_are_found,
    leases::tenants_and_their_users_take_turns,
    leases::a_run_that_no_process_returns_fails,
    leases::renewals_count_how_long_processes_have_worked_on_a_run,
    leases::a_run_that_is_released_in_an_orderly_way_never_fails,
    leases::an_append_without_an_answer_is_stored_completely_or_not_at_all,
    leases::many_concurrent_runs_do_not_deadlock,
    leases::the_process_that_uses_a_database_says_where_it_serves,
    migrating::a_changed_migration_is_an_error,
    migrating::a_newer_database_is_an_error,
    migrating::many_may_start_at_once,
    migrating::migrations_are_reported_and_applied_once,
    views::newer_views_are_left_as_they_are,
    views::older_views_are_replaced_and_what_looks_through_them_stays,
    views::the_views_have_native_times_and_a_row_for_each_model_call,
    ended::no_operation_changes_a_run_that_has_ended,
    ended::a_run_cancelled_before_its_start_never_starts,
    planning::a_session_begins_in_one_commit_with_its_run,
    planning::starts_at_once_do_not_exceed_the_limits,
    planning::sessions_that_wait_for_confirmation_take_no_place_of_those_at_work,
    planning::a_plan_that_no_person_confirms_ends_its_session,
    planning::every_version_of_a_plan_is_kept_whole,
    planning::of_two_refinements_at_once_one_begins,
    planning::a_refinement_begins_only_in_time_and_for_the_current_version,
    planning::a_failed_refinement_leaves_the_earlier_plan,
    planning::a_plan_made_after_its_session_was_cancelled_changes_nothing,
    planning::a_sweep_ends_what_is_due_and_moves_on_what_was_left,
    planning::an_edit_is_of_the_current_version_and_counts_once,
    planning::a_repeated_operation_on_a_session_has_one_effect,
    planning::many_changes_at_once_all_succeed,
    planning::sessions_are_listed_by_their_fields,
    planning::sessions_are_deleted_after_their_retention_time,
    planning::without_content_the_session_keeps_all,
    planning::the_table_of_sessions_refuses_contradictory_rows,
    executing::a_session_that_is_resumed_takes_a_place,
    executing::an_execution_begins_with_a_confirmation_of_the_current_version,
    executing::of_two_executions_at_once_one_begins,
    executing::a_repeated_execution_begins_once,
    executing::the_plan_is_written_as_it_is_worked_through,
    executing::a_repeated_commit_makes_one_version,
    executing::only_the_run_of_a_session_changes_its_plan,
    executing::the_end_of_the_work_ends_the_session,
    executing::a_session_that_was_ended_meanwhile_keeps_its_end,
    executing::a_sweep_ends_sessions_whose_execution_is_lost,
    executing::a_confirmed_plan_never_waits_for_its_confirmation_again,
    executing::a_session_counts_the_tokens_of_a_task_once,
    executing::many_changes_of_executions_at_once_do_not_deadlock,
    settling::an_action_of_a_session_is_settled_while_its_run_is_in_progress,
    settling::a_run_waits_until_all_of_its_actions_are_settled,
    settling::a_run_that_waits_for_a_settlement_ends_with_its_session,
    settling::a_session_says_what_it_waits_for,
    reading::a_decision_reads_back_as_in_the_response,
    reading::a_filter_finds_exactly_the_matching_rows,
    reading::a_text_is_found_and_what_is_not_shown_is_not,
    reading::conditions_on_calls_are_about_one_call,
    reading::a_page_is_bounded_in_bytes,
    reading::a_slow_query_gets_an_error_and_the_store_stays_ready,
    reading::an_invalid_query_gets_an_error_with_the_allowed_values,
    reading::an_open_decision_is_shown_as_open,
    reading::no_user_sees_another_users_rows,
    reading::pages_join_to_the_complete_list,
    reading::a_reader_changes_nothing,
    recording::a_decision_that_was_never_opened_is_inserted_completely,
    recording::a_nul_character_does_not_cost_the_record,
    recording::a_poison_row_does_not_fail_its_neighbours,
    recording::a_row_of_another_owner_is_not_overwritten,
    recording::an_intent_of_an_unknown_decision_is_refused,
    recording::an_opened_decision_is_closed_in_place,
    recording::closing_twice_leaves_one_record,
    recording::each_end_of_a_call_has_its_status,
    recording::every_outcome_can_be_recorded,
    recording::json_is_kept_byte_for_byte,
    recording::many_at_once_are_all_recorded,
    recording::the_tables_refuse_contradictory_rows,
    recovery::a_dead_process_is_recovered_by_the_next,
    recovery::a_living_process_keeps_its_rows,
    recovery::the_owners_outcome_replaces_that_of_recovery,
    recovery::the_sweeper_recovers_without_a_restart,
    recovery::two_processes_recover_at_once,
    recovery::a_decision_opened_without_an_answer_is_closed_as_not_started,
    recovery::what_was_not_started_is_no_lost_outcome_after_a_fault,
    runs::a_run_reads_back_as_it_was_written,
    runs::a_repeated_operation_has_one_effect,
    runs::a_use_of_a_grant_is_counted_once,
    runs::an_unreadable_grant_is_listed_and_can_be_revoked,
    runs::a_grant_for_many_long_addresses_is_stored,
    waiting::a_cancellation_is_not_lost_when_the_run_starts_to_wait,
    waiting::any_operation_causes_only_legal_transitions,
    waiting::a_resolution_never_changes,
    waiting::metrics_say_how_many_actions_wait_for_a_person_and_since_when,
    waiting::an_action_approved_in_time_has_time_to_start,
    waiting::a_forged_grant_is_found,
    waiting::the_same_grant_created_twice_at_once_is_one,
    runs::a_run_ends_completely_or_not_at_all,
    runs::a_failed_end_of_a_run_is_written_later,
    runs::the_first_entries_of_a_run_are_written_if_its_creator_claims_it,
    runs::a_run_created_without_an_answer_is_not_started,
    runs::one_key_makes_one_run,
    runs::a_claim_is_valid_until_its_run_has_ended,
    runs::a_request_that_creates_no_run_stores_no_definitions,
    runs::a_page_of_runs_is_bounded_in_bytes,
    runs::a_paused_run_is_resumed_once,
    runs::a_resumed_run_is_cancelled_by_its_worker,
    runs::a_run_and_those_that_it_called_have_one_event_log,
    runs::a_run_is_cancelled_in_every_state,
    runs::no_call_starts_after_a_run_is_cancelled,
    runs::a_called_run_uses_its_callers_lease,
    runs::the_decisions_of_runs_survive_their_process,
    runs::without_content_the_log_keeps_no_text_and_the_run_keeps_all,
    runs::the_table_of_runs_refuses_contradictory_rows,
    runs::pages_of_runs_join_to_the_complete_list,
    runs::no_user_sees_another_users_runs,
    runs::runs_are_deleted_after_their_retention_time,
    runs::threads_are_deleted_with_their_runs,
    runs::waiting_messages_of_a_thread_run_in_order_whatever_the_clocks_say,
}
