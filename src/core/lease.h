/*
 * Leases of processing rows, renewed by a thread of its own on a connection of its own, while
 * handlers work outside any transaction.
 */
#ifndef PR_CORE_LEASE_H
#define PR_CORE_LEASE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "port/store.h"

typedef struct pr__renewer pr__renewer;

/* One that is kept. It lies in the scope of its message. */
typedef struct pr__lease {
    struct pr__lease *prev, *next;
    const pr__inbox_key *key;
    const char *token;
    int64_t until_us;   /* monotonic, counted from before it was taken */
    int64_t renew_us;   /* when it is due */
    int64_t give_up_us; /* it is renewed no more; 0 = never */
    atomic_bool lost;
    bool kept; /* in the renewer's list */
} pr__lease;

/* Clones the store when the first lease comes. consumer and clock are borrowed. */
pr_status pr__renewer_new(pr_store *store, const char *consumer, const pr_clock *clock,
                          int64_t lease_ms, pr__renewer **ret_renewer, pr_error *err);
/* Ends the thread; accepts NULL, returns NULL. No lease may be kept any more. */
void *pr__renewer_free(pr__renewer *renewer);

/* From now on the lease is renewed each third of its time, until it is dropped, or given up at
   give_up_us. taken_us: monotonic, from before the row was taken. */
pr_status pr__renewer_keep(pr__renewer *renewer, pr__lease *lease, const pr__inbox_key *key,
                           const char *token, int64_t taken_us, int64_t give_up_us, pr_error *err);
/* Not renewed any more. Does nothing when it is not kept. */
void pr__renewer_drop(pr__renewer *renewer, pr__lease *lease);

#endif
