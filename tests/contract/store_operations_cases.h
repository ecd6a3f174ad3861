/*
 * The cases of the operations suite, in the order in which they run: X(what it shows).
 */
#ifndef PR_TESTS_STORE_OPERATIONS_CASES_H
#define PR_TESTS_STORE_OPERATIONS_CASES_H

#define STORE_OPERATIONS_CASES(X)                                                                  \
    X(counts_are_those_of_the_views)                                                               \
    X(an_empty_store_counts_nothing)                                                               \
    X(the_oldest_pending_one_is_told)                                                              \
    X(lists_are_those_of_the_view)                                                                 \
    X(a_redriven_one_is_listed_once)                                                               \
    X(a_list_goes_on_where_it_was_stopped)                                                         \
    X(a_page_does_not_shift_under_new_rows)                                                        \
    X(lists_are_filtered)                                                                          \
    X(cursors_of_others_are_refused)                                                               \
    X(an_inbox_is_listed_with_its_marks)                                                           \
    X(what_failed_is_listed_from_both_boxes)                                                       \
    X(one_unreadable_row_costs_one_row_of_a_list)                                                  \
    X(show_gives_every_row_of_an_id)                                                               \
    X(a_parked_row_outlives_its_log_row)                                                           \
    X(explain_names_the_cause)                                                                     \
    X(explain_tells_of_a_lane)                                                                     \
    X(explain_tells_of_a_subscription)                                                             \
    X(redrive_of_one_that_is_not_dead_is_refused)                                                  \
    X(redrive_of_a_dead_one_makes_it_pending)                                                      \
    X(a_redriven_one_has_all_its_retries_again)                                                    \
    X(redrive_by_filter)                                                                           \
    X(redrive_by_filter_takes_a_hundred_and_knows_the_default_topic)                               \
    X(of_two_redrives_at_once_one_succeeds)                                                        \
    X(what_is_older_than_the_inbox_remembers_needs_force)                                          \
    X(what_no_contract_describes_is_not_redriven)                                                  \
    X(an_inbox_redrive_goes_to_its_consumer_alone)                                                 \
    X(an_inbox_redrive_is_no_second_effect)                                                        \
    X(a_subscriptions_dead_letter_is_redriven_by_its_name)                                         \
    X(discard_of_an_outbox_message)                                                                \
    X(discard_of_an_inbox_message_leaves_its_mark)                                                 \
    X(cancel_of_a_delayed_message)                                                                 \
    X(a_command_killed_beside_its_commit_is_whole_or_nothing)                                      \
    X(out_of_memory_is_told_and_nothing_is_half_done)

#define STORE_OPERATIONS_CASE_DECLARE(name) void case_##name(void **state);
STORE_OPERATIONS_CASES(STORE_OPERATIONS_CASE_DECLARE)
#undef STORE_OPERATIONS_CASE_DECLARE

#endif
