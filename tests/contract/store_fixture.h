/*
 * What the cases of the store suites share: a database of their own, handles on it, a clock that
 * can be moved where the store goes by it, messages, and plain SQL beside it all.
 */
#ifndef PR_TESTS_STORE_FIXTURE_H
#define PR_TESTS_STORE_FIXTURE_H

#include "support/test.h"

#include <postroom/clock.h>
#include <postroom/observer.h>
#include <postroom/unit.h>

#include "contract/store_provider.h"
#include "port/store.h"

#define HANDLES_MAX  4
#define OBSERVED_MAX 32

#define TYPE_PLACED  "urn:message:shop:order-placed"
#define TYPE_PAID    "urn:message:shop:order-paid"

typedef struct store_fixture {
    const store_provider *provider;
    void *world;
    pr_store *stores[HANDLES_MAX]; /* opened on first use; closed by the teardown */
    pr_clock clock;
    pr_observer observer;
    int64_t skew_us; /* what pass_ms has added to the system's clock */
    uint64_t observed[PR_OBSERVE_COUNT];
} store_fixture;

int store_setup(void **state);
int store_setup_with(void **state, const pr_migrate_options *opt);
int store_teardown(void **state);

/* The n-th handle, as another process would have it. */
pr_store *store_at(store_fixture *fix, size_t n);
/* Close the handles, as must be done before a fork. */
void close_stores(store_fixture *fix);
/* Let time go by for the store: moves its clock, or waits where it goes by the database's own. */
void pass_ms(store_fixture *fix, int64_t ms);
/* The store's clock. */
int64_t store_now_us(store_fixture *fix);

/* The answer of plain SQL must be this. */
void check_sql(store_fixture *fix, const char *sql, const char *wanted, const char *label);
/* Plain SQL as somebody else writes it. */
void run_sql(store_fixture *fix, const char *sql);

pr_unit *begin_unit(pr_store *store);
void commit_unit(pr_unit *unit);   /* and free it */
void rollback_unit(pr_unit *unit); /* and free it */

/* Run a child with handles of its own, to be waited for with child_result. */
typedef int (*child_work)(store_fixture *fix, int n);
int start_child(store_fixture *fix, child_work work, int n);
/* What the child returned, 0 to 250; a failed assertion in it fails here. */
int child_result(int pid);

#endif
