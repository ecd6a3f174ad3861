/*
 * Operations on PostgreSQL: counts, lists, one message, redrive, discard, cancel, what blocks.
 */
#ifndef PR_STORE_POSTGRES_OPERATIONS_H
#define PR_STORE_POSTGRES_OPERATIONS_H

#include "port/audit.h"
#include "port/store.h"
#include "store/postgres/connection.h"

pr_status pr__pg_status(pr_store *store, pr_status_report *ret_report, pr_error *err);
pr_status pr__pg_list(pr_store *store, const pr_list_options *opt, pr_list_page *ret_page,
                      pr_record_callback callback, void *user, pr_error *err);
pr_status pr__pg_show(pr_store *store, const char *message_id, pr_record_callback callback,
                      void *user, pr_error *err);
pr_status pr__pg_redrive(pr_store *store, const pr_redrive_options *opt, pr__redrive_check check,
                         void *user, uint64_t *ret_count, pr_error *err);
pr_status pr__pg_discard(pr_store *store, const char *message_id, const char *consumer,
                         const char *who, const char *reason, pr_error *err);
pr_status pr__pg_cancel(pr_store *store, const char *message_id, const char *who,
                        const char *reason, pr_error *err);
pr_status pr__pg_blocker(pr_store *store, const pr_record *record, char *ret_message_id,
                         size_t ret_size, pr_error *err);
pr_status pr__pg_place(pr_store *store, const pr_record *record, pr__place *ret_place,
                       pr_error *err);

/* The audit's row of a command, in its transaction. */
pr_status pr__pg_audit(pr__pg_conn *conn, const pr__audit_subject *subject, const char *action,
                       const char *who, const char *reason, uint64_t count, pr_error *err);

#endif
