/*
 * The cases of the store suite: name and setup of each.
 */
#ifndef PR_TESTS_LEDGER_CASES_H
#define PR_TESTS_LEDGER_CASES_H

#include "contract/ledger_fixture.h"

#define LEDGER_CASES(X)                                                                            \
    X(schema_missing, bare)                                                                        \
    X(schema_options_refused, bare)                                                                \
    X(schema_migrate, bare)                                                                        \
    X(schema_newer, bare)                                                                          \
    X(schema_clone, )                                                                              \
    X(unit_begin_refused, )                                                                        \
    X(unit_join_refused, )                                                                         \
    X(unit_enqueue_needs_transaction, )                                                            \
    X(unit_commits_together, )                                                                     \
    X(unit_rolls_back_together, )                                                                  \
    X(unit_copies, )                                                                               \
    X(unit_same_id, )                                                                              \
    X(unit_same_id_later, )                                                                        \
    X(unit_same_id_savepoint, )                                                                    \
    X(unit_many_all_or_none, )                                                                     \
    X(claim_options_refused, )                                                                     \
    X(claim_gives_what_was_enqueued, )                                                             \
    X(claim_defaults, )                                                                            \
    X(claim_order_and_limits, )                                                                    \
    X(claim_bytes, )                                                                               \
    X(claim_same_key_same_lane, )                                                                  \
    X(claim_fair, )                                                                                \
    X(claim_lanes, )                                                                               \
    X(claim_idle_writes_nothing, )                                                                 \
    X(claim_changed, )                                                                             \
    X(claim_lease, )                                                                               \
    X(claim_fenced_after_settle, )                                                                 \
    X(claim_late_settle, )                                                                         \
    X(claim_settle_repeated, )                                                                     \
    X(claim_renew, )                                                                               \
    X(claim_rest, lane)                                                                            \
    X(claim_takeover_keeps_rest, lane)                                                             \
    X(claim_rest_in_order, lane)                                                                   \
    X(claim_takeovers_forgotten, lane)                                                             \
    X(claim_lanes_in_turn, )                                                                       \
    X(claim_settle_and_next, lane)                                                                 \
    X(claim_partly_fenced, )                                                                       \
    X(claim_isolates_killer, lane)                                                                 \
    X(claim_backlog, )                                                                             \
    X(parked_failed_then_published, )                                                              \
    X(parked_results, )                                                                            \
    X(parked_dead_stays, )                                                                         \
    X(parked_uncharged_count, lane)                                                                \
    X(parked_hold, )                                                                               \
    X(parked_dead_head, )                                                                          \
    X(parked_dead_alone, )                                                                         \
    X(parked_younger_blocks_nothing, )                                                             \
    X(parked_blocks_takeover_and_rest, )                                                           \
    X(parked_blocks_tenant_and_reader, )                                                           \
    X(parked_operator_hold, )                                                                      \
    X(parked_lease, )                                                                              \
    X(parked_open_is_as_before, )                                                                  \
    X(parked_lost, )                                                                               \
    X(parked_isolates_killer, )                                                                    \
    X(parked_many_keys, )                                                                          \
    X(parked_suspect_alone, )                                                                      \
    X(parked_runs_share, )                                                                         \
    X(parked_dead_within_run, )                                                                    \
    X(delayed, )                                                                                   \
    X(reader_relay_passes_local, )                                                                 \
    X(reader_default_local, )                                                                      \
    X(reader_filter_after_limits, )                                                                \
    X(reader_starts_at_the_end, )                                                                  \
    X(reader_found_again, )                                                                        \
    X(reader_number_never_again, )                                                                 \
    X(reader_temporary, )                                                                          \
    X(reader_orders_apart, )                                                                       \
    X(random_hold, )                                                                               \
    X(random_skip, )                                                                               \
    X(random_one_lane, lane)

#define LEDGER_CASE_DECLARE(name, setup) void case_##name(void **state);
LEDGER_CASES(LEDGER_CASE_DECLARE)
#undef LEDGER_CASE_DECLARE

#endif
