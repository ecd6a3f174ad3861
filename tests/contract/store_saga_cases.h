/*
 * The cases of the saga suite, in the order in which they run: X(what it shows).
 */
#ifndef PR_TESTS_STORE_SAGA_CASES_H
#define PR_TESTS_STORE_SAGA_CASES_H

#define STORE_SAGA_CASES(X)                                                                        \
    X(a_saga_needs_a_key_that_can_be_found_again)                                                  \
    X(what_was_saved_comes_back)                                                                   \
    X(a_miss_tells_the_time_too)                                                                   \
    X(each_tenant_and_type_has_its_own)                                                            \
    X(a_second_start_is_no_second_instance)                                                        \
    X(a_rollback_leaves_nothing)                                                                   \
    X(only_the_version_that_was_loaded_is_saved)                                                   \
    X(only_the_instance_that_was_loaded_is_saved)                                                  \
    X(another_at_the_same_saga_is_waited_for)                                                      \
    X(starts_of_many_processes_make_one_instance)                                                  \
    X(no_update_is_lost_among_processes)                                                           \
    X(completion_is_kept_and_filled_late)                                                          \
    X(a_restart_is_another_instance)                                                               \
    X(a_live_lease_is_another_holders)                                                             \
    X(an_expired_lease_can_be_taken_and_fences)                                                    \
    X(a_saga_lease_is_renewed_and_given_back_by_token)                                             \
    X(a_completed_saga_is_not_leased)                                                              \
    X(a_release_needs_a_reason_and_an_expired_lease)                                               \
    X(a_list_is_filtered_and_paged)                                                                \
    X(one_damaged_saga_costs_one_row)                                                              \
    X(show_gives_the_state)                                                                        \
    X(a_sweep_takes_old_tombstones_only)                                                           \
    X(a_tombstone_with_a_lease_stays)

#define STORE_SAGA_CASE_DECLARE(name) void case_##name(void **state);
STORE_SAGA_CASES(STORE_SAGA_CASE_DECLARE)
#undef STORE_SAGA_CASE_DECLARE

#endif
