/*
 * The cases of the saga runtime, in the order in which they run: X(what it shows).
 */
#ifndef PR_TESTS_SAGA_CASES_H
#define PR_TESTS_SAGA_CASES_H

#define SAGA_CASES(X)                                                                              \
    X(state_mark_and_commands_commit_together)                                                     \
    X(a_failing_handler_leaves_everything_untouched)                                               \
    X(what_was_rolled_back_is_not_counted)                                                         \
    X(a_step_knows_its_instance_and_may_end_it)                                                    \
    X(a_duplicate_moves_nothing)                                                                   \
    X(events_before_the_start_are_missing)                                                         \
    X(what_becomes_of_the_missing_is_a_policy)                                                     \
    X(a_message_without_a_key_is_dead)                                                             \
    X(the_row_remembers_its_last_messages)                                                         \
    X(completion_keeps_a_tombstone)                                                                \
    X(a_late_start_is_counted_refused_or_begins_anew)                                              \
    X(a_key_is_free_after_retention)                                                               \
    X(old_rows_are_filled_at_their_next_event)                                                     \
    X(a_timeout_fires_once)                                                                        \
    X(a_cancelled_timeout_is_dropped)                                                              \
    X(a_replaced_timeout_is_dropped)                                                               \
    X(a_timeout_of_a_finished_instance_is_dropped)                                                 \
    X(a_timeout_of_an_earlier_instance_is_dropped)                                                 \
    X(completion_and_timeout_at_once_in_both_orders)                                               \
    X(a_timeout_before_its_own_commit_is_not_lost)                                                 \
    X(a_timeout_without_instance_is_dropped_in_the_end)                                            \
    X(a_timeout_that_no_type_has_is_refused)                                                       \
    X(old_states_are_brought_up)                                                                   \
    X(a_newer_state_is_left_as_it_is)                                                              \
    X(a_state_grows_to_the_limit_and_not_past_it)                                                  \
    X(a_damaged_state_is_reported_and_others_go_on)                                                \
    X(a_leased_saga_waits)                                                                         \
    X(a_leased_step_saves_and_sends)                                                               \
    X(a_lost_lease_saves_nothing)                                                                  \
    X(who_may_take_a_lease)                                                                        \
    X(ten_starts_at_once_make_one_instance)                                                        \
    X(events_at_once_reordered_and_twice)                                                          \
    X(the_workers_of_an_endpoint_share_a_runtime)                                                  \
    X(killed_at_each_point_of_a_step)                                                              \
    X(killed_while_it_holds_a_lease)                                                               \
    X(a_sleeping_holder_is_taken_over)

#define SAGA_CASE_DECLARE(name) void case_##name(void **state);
SAGA_CASES(SAGA_CASE_DECLARE)
#undef SAGA_CASE_DECLARE

#endif
