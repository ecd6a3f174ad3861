/*
 * Operations: to come.
 */
#include "store/sqlite/operations.h"

#include "base/error.h"

pr_status pr__sqlite_status(pr_store *store, pr_status_report *ret_report, pr_error *err)
{
    (void)store;
    (void)ret_report;
    return pr__fail(err, PR_E_UNSUPPORTED, "sqlite", "not built yet");
}

pr_status pr__sqlite_list(pr_store *store, const pr_list_options *opt, pr_list_page *ret_page,
                          pr_record_callback callback, void *user, pr_error *err)
{
    (void)store;
    (void)opt;
    (void)ret_page;
    (void)callback;
    (void)user;
    return pr__fail(err, PR_E_UNSUPPORTED, "sqlite", "not built yet");
}

pr_status pr__sqlite_show(pr_store *store, const char *message_id, pr_record_callback callback,
                          void *user, pr_error *err)
{
    (void)store;
    (void)message_id;
    (void)callback;
    (void)user;
    return pr__fail(err, PR_E_UNSUPPORTED, "sqlite", "not built yet");
}

pr_status pr__sqlite_redrive(pr_store *store, const pr_redrive_options *opt,
                             pr__redrive_check check, void *user, uint64_t *ret_count,
                             pr_error *err)
{
    (void)store;
    (void)opt;
    (void)check;
    (void)user;
    (void)ret_count;
    return pr__fail(err, PR_E_UNSUPPORTED, "sqlite", "not built yet");
}

pr_status pr__sqlite_discard(pr_store *store, const char *message_id, const char *consumer,
                             const char *who, const char *reason, pr_error *err)
{
    (void)store;
    (void)message_id;
    (void)consumer;
    (void)who;
    (void)reason;
    return pr__fail(err, PR_E_UNSUPPORTED, "sqlite", "not built yet");
}

pr_status pr__sqlite_cancel(pr_store *store, const char *message_id, const char *who,
                            const char *reason, pr_error *err)
{
    (void)store;
    (void)message_id;
    (void)who;
    (void)reason;
    return pr__fail(err, PR_E_UNSUPPORTED, "sqlite", "not built yet");
}

pr_status pr__sqlite_blocker(pr_store *store, const pr_record *record, char *ret_message_id,
                             size_t ret_size, pr_error *err)
{
    (void)store;
    (void)record;
    (void)ret_message_id;
    (void)ret_size;
    return pr__fail(err, PR_E_UNSUPPORTED, "sqlite", "not built yet");
}

pr_status pr__sqlite_place(pr_store *store, const pr_record *record, pr__place *ret_place,
                           pr_error *err)
{
    (void)store;
    (void)record;
    (void)ret_place;
    return pr__fail(err, PR_E_UNSUPPORTED, "sqlite", "not built yet");
}
