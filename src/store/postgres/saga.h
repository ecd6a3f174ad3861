/*
 * Sagas: their rows in a unit's transaction, and what operators see and do of them.
 */
#ifndef PR_STORE_POSTGRES_SAGA_H
#define PR_STORE_POSTGRES_SAGA_H

#include "port/store.h"
#include "store/postgres/params.h"

pr_status pr__pg_saga_load(pr_unit *unit, const pr__saga_key *key, pr__arena *arena,
                           bool *ret_found, pr__saga_row *ret_row, pr_error *err);
pr_status pr__pg_saga_insert(pr_unit *unit, const pr__saga_key *key, const char *instance_id,
                             bool *ret_inserted, int64_t *ret_now_us, pr_error *err);
pr_status pr__pg_saga_save(pr_unit *unit, const pr__saga_key *key, const pr__saga_save *save,
                           bool *ret_saved, pr_error *err);
pr_status pr__pg_saga_complete(pr_unit *unit, const pr__saga_key *key, const char *instance_id,
                               bool *ret_changed, pr_error *err);
pr_status pr__pg_saga_lease(pr_unit *unit, const pr__saga_key *key, const pr__saga_lease *lease,
                            bool *ret_taken, pr_error *err);
pr_status pr__pg_saga_renew(pr_unit *unit, const pr__saga_key *key, const pr__saga_lease *lease,
                            bool *ret_kept, pr_error *err);
pr_status pr__pg_saga_unlease(pr_unit *unit, const pr__saga_key *key, const char *token,
                              bool *ret_released, pr_error *err);

/* To be run with other statements. `look` is saga_load in a transaction that has written, by the
   key alone; `change` is saga_save, and raises 22012 where that would be refused. */
extern const char pr__pg_sql_saga_look[];
extern const char pr__pg_sql_saga_change[];
void pr__pg_saga_add_key(pr__pg_params *params, const pr__saga_key *key);
void pr__pg_saga_add_save(pr__pg_params *params, const pr__saga_key *key,
                          const pr__saga_save *save);
/* The row that was found. NOMEM. */
pr_status pr__pg_saga_read(const PGresult *result, pr__arena *arena, pr__saga_row *row,
                           pr_error *err);

pr_status pr__pg_saga_list(pr_store *store, const pr_saga_list_options *opt,
                           pr_saga_list_page *ret_page, pr_saga_record_callback callback,
                           void *user, pr_error *err);
pr_status pr__pg_saga_show(pr_store *store, const pr__saga_key *key,
                           pr_saga_record_callback callback, void *user, pr_error *err);
pr_status pr__pg_saga_release(pr_store *store, const pr__saga_key *key, bool force, const char *who,
                              const char *reason, pr_error *err);
pr_status pr__pg_saga_sweep(pr_store *store, int64_t retention_ms, uint32_t max,
                            uint64_t *ret_count, pr_error *err);

#endif
