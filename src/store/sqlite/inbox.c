/*
 * Inbox: to come.
 */
#include "store/sqlite/inbox.h"

#include "base/error.h"

pr_status pr__sqlite_inbox_mark(pr_unit *unit, const pr__inbox_key *key,
                                const uint8_t hash[PR_CONTENT_HASH_SIZE], pr__mark *ret_mark,
                                pr_error *err)
{
    (void)unit;
    (void)key;
    (void)hash;
    (void)ret_mark;
    return pr__fail(err, PR_E_UNSUPPORTED, "sqlite", "not built yet");
}

pr_status pr__sqlite_inbox_unmark(pr_unit *unit, const pr__inbox_key *key, pr_error *err)
{
    (void)unit;
    (void)key;
    return pr__fail(err, PR_E_UNSUPPORTED, "sqlite", "not built yet");
}

pr_status pr__sqlite_inbox_find(pr_unit *unit, const pr__inbox_key *key,
                                const uint8_t hash[PR_CONTENT_HASH_SIZE], bool *ret_found,
                                pr__inbox_row *ret_row, pr_error *err)
{
    (void)unit;
    (void)key;
    (void)hash;
    (void)ret_found;
    (void)ret_row;
    return pr__fail(err, PR_E_UNSUPPORTED, "sqlite", "not built yet");
}

pr_status pr__sqlite_inbox_blocked(pr_unit *unit, const pr__inbox_key *key, const char *message_key,
                                   pr_order order, bool *ret_blocked, pr_error *err)
{
    (void)unit;
    (void)key;
    (void)message_key;
    (void)order;
    (void)ret_blocked;
    return pr__fail(err, PR_E_UNSUPPORTED, "sqlite", "not built yet");
}

pr_status pr__sqlite_inbox_park(pr_unit *unit, const pr__inbox_key *key, const pr_message *message,
                                const pr__inbox_park *park, bool *ret_inserted, pr_error *err)
{
    (void)unit;
    (void)key;
    (void)message;
    (void)park;
    (void)ret_inserted;
    return pr__fail(err, PR_E_UNSUPPORTED, "sqlite", "not built yet");
}

pr_status pr__sqlite_inbox_repark(pr_unit *unit, const pr__inbox_key *key, const char *token,
                                  const pr__inbox_park *park, bool *ret_changed, pr_error *err)
{
    (void)unit;
    (void)key;
    (void)token;
    (void)park;
    (void)ret_changed;
    return pr__fail(err, PR_E_UNSUPPORTED, "sqlite", "not built yet");
}

pr_status pr__sqlite_inbox_unpark(pr_unit *unit, const pr__inbox_key *key, const char *token,
                                  bool *ret_deleted, pr_error *err)
{
    (void)unit;
    (void)key;
    (void)token;
    (void)ret_deleted;
    return pr__fail(err, PR_E_UNSUPPORTED, "sqlite", "not built yet");
}

pr_status pr__sqlite_inbox_claim(pr_store *store, const pr__inbox_claim_options *opt,
                                 pr__batch **ret_batch, pr_error *err)
{
    (void)store;
    (void)opt;
    (void)ret_batch;
    return pr__fail(err, PR_E_UNSUPPORTED, "sqlite", "not built yet");
}

pr_status pr__sqlite_inbox_due(pr_store *store, const char *consumer, pr_order order,
                               int64_t *ret_next_ms, pr_error *err)
{
    (void)store;
    (void)consumer;
    (void)order;
    (void)ret_next_ms;
    return pr__fail(err, PR_E_UNSUPPORTED, "sqlite", "not built yet");
}

pr_status pr__sqlite_inbox_release(pr_store *store, const char *consumer, pr__batch *batch,
                                   pr_error *err)
{
    (void)store;
    (void)consumer;
    (void)batch;
    return pr__fail(err, PR_E_UNSUPPORTED, "sqlite", "not built yet");
}

pr_status pr__sqlite_inbox_renew(pr_store *store, const char *consumer, pr__batch *batch,
                                 int64_t lease_ms, pr_error *err)
{
    (void)store;
    (void)consumer;
    (void)batch;
    (void)lease_ms;
    return pr__fail(err, PR_E_UNSUPPORTED, "sqlite", "not built yet");
}
