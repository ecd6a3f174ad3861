/*
 * The cases of the inbox suite, in the order in which they run: X(what it shows).
 */
#ifndef PR_TESTS_STORE_INBOX_CASES_H
#define PR_TESTS_STORE_INBOX_CASES_H

#define STORE_INBOX_CASES(X)                                                                       \
    X(keys_that_cannot_be_found_again_are_refused)                                                 \
    X(a_mark_is_new_then_done_then_a_conflict)                                                     \
    X(the_version_and_the_type_are_content)                                                        \
    X(each_consumer_and_tenant_has_its_own_mark)                                                   \
    X(a_rollback_leaves_no_mark)                                                                   \
    X(a_duplicate_leaves_the_transaction_usable)                                                   \
    X(another_at_work_is_busy_and_not_done)                                                        \
    X(parallel_deliveries_have_one_effect)                                                         \
    X(states_that_nothing_is_parked_in)                                                            \
    X(a_full_copy_is_kept)                                                                         \
    X(what_lacks_everything_is_kept_too)                                                           \
    X(a_row_that_stands_is_not_replaced)                                                           \
    X(a_dead_row_is_never_claimed)                                                                 \
    X(a_due_time_is_respected)                                                                     \
    X(a_long_delay_does_not_overflow)                                                              \
    X(a_claim_gives_whole_runs_in_order)                                                           \
    X(the_rest_of_a_run_waits_for_its_beginning)                                                   \
    X(whether_a_key_is_blocked)                                                                    \
    X(what_an_operator_holds_stays)                                                                \
    X(a_batch_is_bounded_in_bytes)                                                                 \
    X(one_unreadable_row_costs_one_row)                                                            \
    X(only_the_token_changes_a_leased_row)                                                         \
    X(errors_are_kept_with_the_row)                                                                \
    X(a_live_lease_is_left_alone)                                                                  \
    X(a_takeover_fences_the_old_holder)                                                            \
    X(an_expired_lease_that_nobody_took_still_counts)                                              \
    X(a_message_that_kills_its_holder_is_found)                                                    \
    X(a_processing_row_of_a_delivery_comes_back)                                                   \
    X(what_is_given_back_is_as_it_was)                                                             \
    X(an_idle_consumer_waits_for_no_writer)                                                        \
    X(processes_share_the_retries)

#define STORE_INBOX_CASE_DECLARE(name) void case_##name(void **state);
STORE_INBOX_CASES(STORE_INBOX_CASE_DECLARE)
#undef STORE_INBOX_CASE_DECLARE

#endif
