/*
 * The PostgreSQL store: its struct, and what the files of this folder share about it.
 */
#ifndef PR_STORE_POSTGRES_STORE_H
#define PR_STORE_POSTGRES_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <postroom/postgres.h>

#include "port/reader.h"
#include "port/store.h"
#include "store/postgres/connection.h"

/* What the relay and subscriptions decide by, and which cluster it is; read once a connection. */
typedef struct pr__pg_settings {
    uint64_t generation; /* of the connection; 0 = not known */
    uint32_t lanes;
    char default_transport[PR__SCHEME_SIZE_MAX + 1];
    uint32_t schema_version;
    int64_t system_id; /* of the cluster: transaction ids mean something within it only */
    int64_t database;  /* oid */
    int64_t log;       /* oid of the table outbox */
} pr__pg_settings;

/* A connection of the host that was found to be on our database. */
typedef struct pr__pg_known_host {
    PGconn *pg;
    int backend;
    int socket;
} pr__pg_known_host;

typedef struct pr__pg_store {
    pr_store base; /* first member */
    pr__pg_conn conn;
    char *conninfo; /* NULL = the PG* variables */
    int64_t unit_idle_ms;
    bool statements_off;
    bool schema_check_off;
    bool unit_open; /* a unit of ours is open on conn */
    pid_t pid;      /* of the process that opened it; a fork must not use it */
    bool changed_known;
    int64_t last_value; /* of the log's sequence, at the last look */
    uint64_t own_writes, seen_writes;
    uint32_t next_lane;   /* claims begin here, in turn */
    uint32_t stay_rounds; /* so many begin with the lanes that they settle */
    bool idle;            /* the last claim found nothing */
    pr__pg_settings settings;
    pr__reader_filter filter;
    pr__pg_known_host host;
} pr__pg_store;

static inline pr__pg_store *pr__pg_store_of(pr_store *store)
{
    return (pr__pg_store *)(void *)store;
}

/* A token: a UUIDv7 of the store's clock and randomness. */
void pr__pg_token(const pr_store *store, char out[37]);
/* Milliseconds from now until an instant, rounded up, at least 0. */
int64_t pr__pg_wait_ms(int64_t now_us, int64_t due_us);
/* The database's clock. */
pr_status pr__pg_now(pr__pg_conn *conn, int64_t *ret_now_us, pr_error *err);

/* Is the handle fit for a call of its own? Connects again when the connection was lost. STATE: a
   fork, or a unit is open on it. */
pr_status pr__pg_ready(pr__pg_store *store, pr_error *err);
/* Read lanes, default transport and cluster, unless they are known. */
pr_status pr__pg_settings_load(pr__pg_store *store, pr_error *err);
/* What it is, without secrets: "postgresql <host>/<database> schema <name>". */
void pr__pg_describe(const pr__pg_store *store, char *out, size_t size);

/* The methods, by file. */
/* migrate.c, schema.c */
pr_status pr__pg_migrate(pr_store *store, const pr_migrate_options *opt,
                         pr_migrate_report *ret_report, pr_error *err);
pr_status pr__pg_check(pr_store *store, pr_error *err);
/* unit.c */
pr_status pr__pg_unit_begin(pr_store *store, pr_unit **ret_unit, pr_error *err);
/* reader.c */
pr_status pr__pg_reader_open(pr_store *store, const pr__reader_spec *spec, int64_t *ret_reader,
                             pr_error *err);
pr_status pr__pg_reader_keep(pr_store *store, int64_t reader, pr_error *err);
pr_status pr__pg_reader_drop(pr_store *store, int64_t reader, pr_error *err);
pr_status pr__pg_reader_set_order(pr_store *store, int64_t reader, pr_order order, pr_error *err);
pr_status pr__pg_reader_find(pr_store *store, const char *name, int64_t *ret_reader, pr_error *err);
pr_status pr__pg_reader_exists(pr_store *store, const char *destination, bool *ret_exists,
                               pr_error *err);
/* claim.c */
pr_status pr__pg_claim(pr_store *store, const pr__claim_options *opt, pr__batch **ret_batch,
                       pr_error *err);
/* settle.c */
pr_status pr__pg_settle(pr_store *store, pr__batch *batch, const pr__claim_options *next,
                        pr__settle_report *ret_report, pr__batch **ret_next, pr_error *err);
pr_status pr__pg_renew(pr_store *store, pr__batch *batch, int64_t lease_ms, pr_error *err);
/* parked_claim.c, delayed.c */
pr_status pr__pg_claim_parked(pr_store *store, const pr__claim_options *opt, pr__batch **ret_batch,
                              pr_error *err);
pr_status pr__pg_parked_due(pr_store *store, int64_t reader, int64_t *ret_next_ms, pr_error *err);
pr_status pr__pg_parked_count(pr_store *store, int64_t reader, uint32_t lane, uint32_t *ret_count,
                              pr_error *err);
pr_status pr__pg_promote(pr_store *store, uint32_t max, uint32_t *ret_count, int64_t *ret_next_ms,
                         pr_error *err);
/* maintain.c */
pr_status pr__pg_changed(pr_store *store, bool *ret_changed, pr_error *err);
pr_status pr__pg_maintain(pr_store *store, pr_error *err);
pr_status pr__pg_backlog(pr_store *store, int64_t reader, int64_t limit_ms,
                         pr__backlog *ret_backlog, pr_error *err);

#endif
