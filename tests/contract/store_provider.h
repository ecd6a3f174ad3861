/*
 * What a store gives the contract suites. The suites include no other header of a store; a store of
 * your own passes them by filling this table.
 */
#ifndef PR_TESTS_STORE_PROVIDER_H
#define PR_TESTS_STORE_PROVIDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/store.h>

typedef struct store_settings {
    int64_t busy_ms;             /* 0 = 5,000 */
    uint64_t body_size_max;      /* 0 = 1 MiB */
    const pr_clock *clock;       /* NULL = the system's */
    const pr_observer *observer; /* NULL = none */
} store_settings;

typedef struct store_provider {
    const char *name;  /* of the suite's run, such as "store on SQLite" */
    const char *kind;  /* ops->name of the store that must really be in use */
    bool clock_given;  /* leases go by the clock of the settings */
    bool text_checked; /* the database itself refuses text that is not UTF-8 */

    /* A database of its own for each case, with the schema in it; opt NULL = defaults. */
    pr_status (*begin)(const pr_migrate_options *opt, void **ret_world, pr_error *err);
    /* A handle as another process would have it, also after a fork. settings NULL = defaults. */
    pr_status (*open)(void *world, const store_settings *settings, pr_store **ret_store,
                      pr_error *err);
    /* Let time go by for what stands in the database; NULL: by the clock of the settings. */
    void (*pass_ms)(void *world, int64_t ms);
    /* Run plain SQL ({p}outbox and so on for table names) on a connection of its own, as somebody
       else would; out is the first column of the first row as text, "" when there is none. */
    pr_status (*ask)(void *world, const char *sql, char *out, size_t size, pr_error *err);
    void (*end)(void *world);
} store_provider;

/* Run every case of a suite against the provider; the number of failed ones. */
int store_inbox_contract_run(const store_provider *provider);
int store_operations_contract_run(const store_provider *provider);
int store_saga_contract_run(const store_provider *provider);
int saga_contract_run(const store_provider *provider);
int saga_steps_run(const store_provider *provider);
int saga_threads_run(const store_provider *provider);

#endif
