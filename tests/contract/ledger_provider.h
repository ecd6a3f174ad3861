/*
 * What a store gives the contract suite. The suite includes no other header of a store; a store of
 * your own passes it by filling this table and calling ledger_contract_run().
 */
#ifndef PR_TESTS_LEDGER_PROVIDER_H
#define PR_TESTS_LEDGER_PROVIDER_H

#include <stdbool.h>
#include <stdint.h>

#include <postroom/store.h>
#include <postroom/unit.h>

typedef struct ledger_provider {
    const char *name;       /* of the suite's run */
    const char *kind;       /* ops->name of the store that must really be in use */
    uint64_t body_size_max; /* the limit that the stores are opened with */

    /* A place of its own for each case: an empty database, not migrated yet. */
    pr_status (*begin)(void **ret_world, pr_error *err);
    /* A handle of its own onto it; unchecked opens it although the schema is missing. */
    pr_status (*open)(void *world, bool unchecked, pr_store **ret_store, pr_error *err);
    /* The database's clock goes on by ms; in between it stands still. */
    void (*pass_ms)(void *world, int64_t ms);
    /* A statement by other hands, on a connection of its own; {t} stands before a table's base
       name. *ret_value: the first column of the first row, -1 when there is none. */
    bool (*raw)(void *world, const char *sql, int64_t *ret_value);

    /* The host's own connection. */
    void *(*host_open)(void *world);
    bool (*host_run)(void *host, const char *sql);
    pr_status (*host_join)(void *host, pr_store *store, pr_unit **ret_unit, pr_error *err);
    void (*host_close)(void *host);
    /* One statement on the connection of a unit that the store began. */
    bool (*unit_run)(pr_unit *unit, const char *sql);

    void (*end)(void *world);
} ledger_provider;

/* Run every case against the provider; the number of failed ones. */
int ledger_contract_run(const ledger_provider *provider);

#endif
