/*
 * The cases of the transport suite, in the order in which they run: X(what it shows).
 */
#ifndef PR_TESTS_TRANSPORT_CASES_H
#define PR_TESTS_TRANSPORT_CASES_H

#define TRANSPORT_CASES(X)                                                                         \
    X(the_provider_is_the_one_named)                                                               \
    X(garbage_is_refused_when_sending)                                                             \
    X(garbage_is_refused_when_receiving)                                                           \
    X(nobody_there_is_returned)                                                                    \
    X(a_new_subscription_is_seen_at_once)                                                          \
    X(unrouted_ok_is_confirmed)                                                                    \
    X(a_bad_message_fails_alone)                                                                   \
    X(the_address_of_another_transport_is_refused)                                                 \
    X(other_types_for_one_endpoint_conflict)                                                       \
    X(stale_tags_are_fenced)                                                                       \
    X(a_topic_reaches_each_subscription_once)                                                      \
    X(an_endpoint_address_reaches_it_alone)                                                        \
    X(the_envelope_arrives_as_it_was_sent)                                                         \
    X(deliver_at_does_not_hold_it_up)                                                              \
    X(no_more_than_the_window_is_taken)                                                            \
    X(memory_is_borrowed_until_the_outcome)                                                        \
    X(each_submit_ends_in_one_outcome)                                                             \
    X(closing_with_outcomes_open_is_clean)                                                         \
    X(competing_consumers_share)                                                                   \
    X(requeue_brings_it_again)                                                                     \
    X(reject_ends_in_the_dead_queue)                                                               \
    X(a_vanished_holder_is_replaced)                                                               \
    X(keep_keeps_what_is_in_hand)                                                                  \
    X(order_per_key_is_kept)                                                                       \
    X(no_more_than_the_prefetch_is_in_hand)                                                        \
    X(closing_gives_back_what_is_in_hand)                                                          \
    X(a_queue_stands_without_its_holder)                                                           \
    X(a_temporary_subscription_vanishes)                                                           \
    X(a_temporary_subscription_takes_topics)                                                       \
    X(topology_is_made_and_checked)                                                                \
    X(the_backlog_counts_until_it_is_settled)

#define TRANSPORT_CASE_DECLARE(name) void case_##name(void **state);
TRANSPORT_CASES(TRANSPORT_CASE_DECLARE)
#undef TRANSPORT_CASE_DECLARE

#endif
