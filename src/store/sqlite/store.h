/*
 * The SQLite store: its struct, and what the files of this folder share about it.
 */
#ifndef PR_STORE_SQLITE_STORE_H
#define PR_STORE_SQLITE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <postroom/sqlite.h>

#include "port/reader.h"
#include "port/store.h"
#include "store/sqlite/connection.h"

/* What the relay and subscriptions decide by; read once a connection, again when it may have
   changed. */
typedef struct pr__sqlite_settings {
    bool known;
    uint32_t lanes;
    char default_transport[PR__SCHEME_SIZE_MAX + 1];
    uint32_t schema_version;
} pr__sqlite_settings;

typedef struct pr__sqlite_store {
    pr_store base; /* first member */
    pr__sqlite_conn conn;
    pr__line *line; /* shared with its clones */
    char *path;
    int64_t busy_ms;
    pid_t pid;    /* of the process that opened it; a fork must not use it */
    dev_t device; /* of the file, to tell another database */
    ino_t inode;
    bool schema_check_off;
    bool unit_open; /* a unit of ours is open on conn */
    bool changed_known;
    int64_t data_version;  /* at the last look */
    uint64_t seen_commits; /* own_commits at the last look */
    uint32_t next_lane;    /* claims begin here, in turn */
    uint32_t wal_pressure; /* checkpoints in a row that could not finish */
    pr__sqlite_settings settings;
    pr__reader_filter filter;
} pr__sqlite_store;

static inline pr__sqlite_store *pr__sqlite_store_of(pr_store *store)
{
    return (pr__sqlite_store *)(void *)store;
}

/* The database's clock; on SQLite it is the store's clock port. */
int64_t pr__sqlite_now(const pr_store *store);
/* A token: a UUIDv7 of the store's clock and randomness. */
void pr__sqlite_token(const pr_store *store, char out[37]);
/* Milliseconds from now until an instant, rounded up, at least 0. */
int64_t pr__sqlite_wait_ms(int64_t now_us, int64_t due_us);

/* Is the handle fit for a call of its own (process, poison)? */
pr_status pr__sqlite_ready(pr__sqlite_store *store, pr_error *err);
/* Read lanes and default transport, unless they are known. Inside or outside a transaction. */
pr_status pr__sqlite_settings_load(pr__sqlite_store *store, pr_error *err);
/* Close the connection and open another, after an I/O error. */
pr_status pr__sqlite_reopen(pr__sqlite_store *store, pr_error *err);

/* The methods, by file. */
/* migrate.c, check.c */
pr_status pr__sqlite_migrate(pr_store *store, const pr_migrate_options *opt,
                             pr_migrate_report *ret_report, pr_error *err);
pr_status pr__sqlite_check(pr_store *store, pr_error *err);
/* reader.c */
pr_status pr__sqlite_reader_open(pr_store *store, const pr__reader_spec *spec, int64_t *ret_reader,
                                 pr_error *err);
pr_status pr__sqlite_reader_keep(pr_store *store, int64_t reader, pr_error *err);
pr_status pr__sqlite_reader_drop(pr_store *store, int64_t reader, pr_error *err);
pr_status pr__sqlite_reader_set_order(pr_store *store, int64_t reader, pr_order order,
                                      pr_error *err);
pr_status pr__sqlite_reader_find(pr_store *store, const char *name, int64_t *ret_reader,
                                 pr_error *err);
pr_status pr__sqlite_reader_exists(pr_store *store, const char *destination, bool *ret_exists,
                                   pr_error *err);
/* claim.c */
pr_status pr__sqlite_claim(pr_store *store, const pr__claim_options *opt, pr__batch **ret_batch,
                           pr_error *err);
/* settle.c */
pr_status pr__sqlite_settle(pr_store *store, pr__batch *batch, const pr__claim_options *next,
                            pr__settle_report *ret_report, pr__batch **ret_next, pr_error *err);
pr_status pr__sqlite_renew(pr_store *store, pr__batch *batch, int64_t lease_ms, pr_error *err);
/* parked_claim.c, delayed.c */
pr_status pr__sqlite_claim_parked(pr_store *store, const pr__claim_options *opt,
                                  pr__batch **ret_batch, pr_error *err);
pr_status pr__sqlite_parked_due(pr_store *store, int64_t reader, int64_t *ret_next_ms,
                                pr_error *err);
pr_status pr__sqlite_parked_count(pr_store *store, int64_t reader, uint32_t lane,
                                  uint32_t *ret_count, pr_error *err);
pr_status pr__sqlite_promote(pr_store *store, uint32_t max, uint32_t *ret_count,
                             int64_t *ret_next_ms, pr_error *err);
/* maintain.c */
pr_status pr__sqlite_changed(pr_store *store, bool *ret_changed, pr_error *err);
pr_status pr__sqlite_maintain(pr_store *store, pr_error *err);
pr_status pr__sqlite_backlog(pr_store *store, int64_t reader, int64_t limit_ms,
                             pr__backlog *ret_backlog, pr_error *err);
/* unit.c */
pr_status pr__sqlite_unit_begin(pr_store *store, pr_unit **ret_unit, pr_error *err);

#endif
