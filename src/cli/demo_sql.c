/*
 * Plain SQLite for the demo, as a host program would use it; what the shop and billing share.
 */
#include <sqlite3.h>
#include <stddef.h>

#include "base/error.h"
#include "cli/demo.h"

#define ORIGIN "demo"

pr_status pr__demo_failed(struct sqlite3 *db, const char *what, pr_error *err)
{
    return pr__fail(err, PR_E_BACKEND, ORIGIN, "%s: %s", what,
                    db ? sqlite3_errmsg(db) : "out of memory");
}

pr_status pr__demo_open(const char *path, int flags, struct sqlite3 **ret_db, pr_error *err)
{
    sqlite3 *db = NULL;
    if (sqlite3_open_v2(path, &db, flags, NULL) != SQLITE_OK) {
        pr_status status = pr__fail(err, PR_E_BACKEND, ORIGIN, "cannot open '%s': %s", path,
                                    db ? sqlite3_errmsg(db) : "out of memory");
        sqlite3_close(db);
        return status;
    }
    *ret_db = db;
    return PR_OK;
}

pr_status pr__demo_exec(struct sqlite3 *db, const char *sql, pr_error *err)
{
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        return pr__demo_failed(db, "cannot run a statement of the demo", err);
    return PR_OK;
}

pr_status pr__demo_number(struct sqlite3 *db, const char *sql, int64_t *ret_value, pr_error *err)
{
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) != SQLITE_OK)
        return pr__demo_failed(db, "cannot read the database", err);
    pr_status status = PR_OK;
    if (sqlite3_step(statement) == SQLITE_ROW)
        *ret_value = sqlite3_column_int64(statement, 0);
    else
        status = pr__demo_failed(db, "cannot read the database", err);
    sqlite3_finalize(statement);
    return status;
}

static const pr_field order_fields[] = {
    {"order", PR_FIELD_INT64, 0, 0, offsetof(pr__order, number), 0, 0, NULL},
    {"customer", PR_FIELD_TEXT, 0, 0, offsetof(pr__order, customer), 0, 0, NULL},
    {"seq", PR_FIELD_INT64, 0, 0, offsetof(pr__order, seq), 0, 0, NULL},
    {"amount_cents", PR_FIELD_INT64, 0, 0, offsetof(pr__order, amount_cents), 0, 0, NULL},
    {NULL, 0, 0, 0, 0, 0, 0, NULL},
};

static const pr_contract order_contract = {
    .size = (uint32_t)sizeof(pr_contract),
    .type_version = 1,
    .type = PR__DEMO_TYPE,
    .kind = PR_CONTRACT_INTEGRATION_EVENT,
    .fields = order_fields,
    .object_size = sizeof(pr__order),
};

pr_status pr__demo_contracts(pr_contracts **ret_contracts, pr_error *err)
{
    pr_contracts *contracts = NULL;
    TRY(pr_contracts_new(&contracts, err));
    pr_status status = pr_contracts_register(contracts, &order_contract, err);
    if (status != PR_OK) {
        pr_contracts_free(contracts);
        return status;
    }
    *ret_contracts = contracts;
    return PR_OK;
}
