/*
 * The schema from outside: migrating, its options, opening without it (capabilities 50, 124, 125).
 */
#include "contract/ledger_cases.h"

static pr_store *open_unchecked(fixture *fix)
{
    pr_error err = PR_ERROR_INIT;
    pr_store *store = NULL;
    check_ok(fix->provider->open(fix->world, true, &store, &err), &err, "open");
    return store;
}

void case_schema_missing(void **state)
{
    fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    pr_store *store = NULL;
    check_error(fix->provider->open(fix->world, false, &store, &err), &err, PR_E_SCHEMA,
                "postroom migrate", "no schema");
    assert_null(store);
}

void case_schema_options_refused(void **state)
{
    fixture *fix = *state;
    pr_store *store = open_unchecked(fix);
    const struct {
        const char *label;
        pr_migrate_options opt;
        const char *text;
    } cases[] = {
        {"three lanes", {.size = sizeof(pr_migrate_options), .lanes = 3}, "power of two"},
        {"512 lanes", {.size = sizeof(pr_migrate_options), .lanes = 512}, "power of two"},
        {"transport",
         {.size = sizeof(pr_migrate_options), .default_transport = "a'b"},
         "default_transport"},
        {"no transport",
         {.size = sizeof(pr_migrate_options), .default_transport = ""},
         "default_transport"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        check_error(pr_store_migrate(store, &cases[i].opt, NULL, &err), &err, PR_E_INVALID,
                    cases[i].text, cases[i].label);
    }
    pr_store_free(store);
}

static void collect(void *user, const char *sql)
{
    size_t *size = user;
    *size += strlen(sql);
}

void case_schema_migrate(void **state)
{
    fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    pr_store *store = open_unchecked(fix);
    size_t printed = 0;
    pr_migrate_options print = {.size = (uint32_t)sizeof print, .print = collect, .user = &printed};
    pr_migrate_report report = {.size = (uint32_t)sizeof report};
    check_ok(pr_store_migrate(store, &print, &report, &err), &err, "print");
    assert_true(printed > 2000);
    assert_int_equal(report.version_after, 0);
    check_error(pr_store_check(store, &err), &err, PR_E_SCHEMA, "migrate", "printing changes none");
    pr_error_clear(&err);

    pr_migrate_options opt = {.size = (uint32_t)sizeof opt, .lanes = 4};
    check_ok(pr_store_migrate(store, &opt, &report, &err), &err, "migrate");
    assert_int_equal(report.version_before, 0);
    assert_true(report.version_after > 0);
    check_ok(pr_store_check(store, &err), &err, "check");
    check_ok(pr_store_migrate(store, &opt, &report, &err), &err, "again");
    assert_int_equal(report.version_before, report.version_after);
    printed = 0;
    check_ok(pr_store_migrate(store, &print, &report, &err), &err, "nothing is left to print");
    assert_int_equal(printed, 0);

    opt.lanes = 8;
    check_error(pr_store_migrate(store, &opt, &report, &err), &err, PR_E_INVALID, "fixed",
                "other lanes");
    pr_error_clear(&err);
    opt = (pr_migrate_options){
        .size = (uint32_t)sizeof opt, .default_transport = "broker", .relay_order = PR_ORDER_HALT};
    check_ok(pr_store_migrate(store, &opt, &report, &err), &err, "settings");
    pr_store_free(store);

    post(fix, NULL, NULL);
    pr__batch *batch = claim_some(fix, store_at(fix, 0), 1, 10);
    assert_string_equal(batch->items[0].message.destination, TO_BROKER);
    assert_int_equal(batch->order, PR_ORDER_HALT);
    pr__batch_free(batch);
}

void case_schema_newer(void **state)
{
    fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    pr_store *store = open_unchecked(fix);
    check_ok(pr_store_migrate(store, NULL, NULL, &err), &err, "migrate");
    run(fix, "INSERT INTO {t}schema_version VALUES (1000, 'future', 0)");
    check_error(pr_store_migrate(store, NULL, NULL, &err), &err, PR_E_SCHEMA, "newer", "migrate");
    pr_error_clear(&err);
    check_error(pr_store_check(store, &err), &err, PR_E_SCHEMA, "newer", "check");
    pr_store_free(store);
}

void case_schema_clone(void **state)
{
    fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    pr_store *clone = NULL;
    check_ok(pr_store_clone(store_at(fix, 0), &clone, &err), &err, "clone");
    assert_string_equal(clone->ops->name, fix->provider->kind);
    assert_true(clone->body_size_max == store_at(fix, 0)->body_size_max);
    post(fix, TO_BROKER, NULL);
    pr__batch *batch = claim_some(fix, clone, 1, 10);
    pr__batch_free(batch);
    pr_store_free(clone);
}
