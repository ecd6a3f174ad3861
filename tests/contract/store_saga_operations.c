/*
 * What operators see and do of sagas, compiled once and run against every store: release, lists,
 * show, the sweep of tombstones.
 */
#include "base/text.h"
#include "contract/saga_steps.h"
#include "contract/store_saga_cases.h"

#define SEEN_MAX 64

/* What a list or show handed over. */
typedef struct seen {
    uint32_t count;
    uint32_t stop_after; /* 0 = never */
    char keys[SEEN_MAX][16];
    char unreadable[64];
    char state[64];
    char owner[32];
    char timeouts[64];
    pr_saga_record last;
} seen;

static bool look(void *user, const pr_saga_record *record)
{
    seen *all = user;
    assert_true(all->count < SEEN_MAX);
    pr__format(all->keys[all->count++], sizeof all->keys[0], "%s", record->key);
    all->last = *record;
    if (record->unreadable)
        pr__format(all->unreadable, sizeof all->unreadable, "%s", record->unreadable);
    pr__format(all->state, sizeof all->state, "%.*s",
               record->state ? (int)record->state_size_bytes : 0,
               record->state ? (const char *)record->state : "");
    pr__format(all->owner, sizeof all->owner, "%s", record->lease_owner ? record->lease_owner : "");
    pr__format(all->timeouts, sizeof all->timeouts, "%s", record->timeouts);
    return all->stop_after == 0 || all->count < all->stop_after;
}

static const char *joined(const seen *all, char out[256])
{
    out[0] = '\0';
    for (uint32_t i = 0; i < all->count; i++) {
        size_t used = strlen(out);
        pr__format(out + used, 256 - used, "%s%s", i ? "," : "", all->keys[i]);
    }
    return out;
}

static pr_status release(pr_store *store, const char *key, uint32_t force, const char *reason,
                         pr_error *err)
{
    pr_saga_release_options opt = {.size = (uint32_t)sizeof opt,
                                   .force = force,
                                   .saga_type = SAGA_TYPE,
                                   .key = key,
                                   .who = "anna",
                                   .reason = reason};
    return pr_operations_saga_release(store, &opt, err);
}

void case_a_release_needs_a_reason_and_an_expired_lease(void **state)
{
    store_fixture *fix = *state;
    const char *audits = "SELECT count(*) FROM {p}_audit WHERE action = 'saga-release'";
    pr__saga_row row;
    saga_start(store_at(fix, 0), "k", INSTANCE_1, "{}");
    assert_true(saga_lease_now(store_at(fix, 0), "k", TOKEN_1, 60000));
    const struct {
        const char *label, *key, *reason;
        pr_status wanted;
        const char *text;
    } cases[] = {
        {"no reason", "k", "", PR_E_INVALID, "a reason is needed"},
        {"no key", "", "r", PR_E_INVALID, "correlation key"},
        {"not there", "none", "r", PR_E_NOT_FOUND, "there is no saga \"none\""},
        {"live", "k", "r", PR_E_STATE, "leased by \"worker\""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        check_error(release(store_at(fix, 1), cases[i].key, 0, cases[i].reason, &err), &err,
                    cases[i].wanted, cases[i].text, cases[i].label);
    }
    check_sql(fix, audits, "0", "nothing was changed");
    pr_error err = PR_ERROR_INIT;
    pass_ms(fix, 61000);
    check_ok(release(store_at(fix, 1), "k", 0, "its worker is gone", &err), &err, "expired");
    assert_true(saga_load_now(store_at(fix, 0), "k", &row));
    assert_string_equal(row.lease_token, "");
    check_error(release(store_at(fix, 1), "k", 0, "again", &err), &err, PR_E_STATE, "not leased",
                "released before");
    assert_true(saga_lease_now(store_at(fix, 0), "k", TOKEN_1, 60000));
    err = (pr_error)PR_ERROR_INIT;
    check_ok(release(store_at(fix, 1), "k", 1, "it must go on", &err), &err, "by force");
    pr__saga_save save = saga_state(INSTANCE_1, 1, "{}");
    save.lease_token = TOKEN_1;
    assert_false(saga_save_now(store_at(fix, 0), "k", &save)); /* the old holder is fenced */
    check_sql(fix, audits, "2", "each is in the audit");
    check_sql(fix, "SELECT who || subject FROM {p}_audit WHERE reason = 'it must go on'",
              "anna{\"saga_type\":\"order\",\"key\":\"k\",\"forced\":true}", "audit");
}

static void list(store_fixture *fix, pr_saga_list_options opt, seen *all, pr_saga_list_page *page)
{
    pr_error err = PR_ERROR_INIT;
    opt.size = (uint32_t)sizeof opt;
    *page = (pr_saga_list_page){.size = (uint32_t)sizeof *page};
    check_ok(pr_operations_sagas(store_at(fix, 0), &opt, page, look, all, &err), &err, "list");
}

static void start_five(store_fixture *fix)
{
    for (int i = 0; i < 5; i++) {
        char key[16], id[PR_UUID_TEXT_SIZE];
        pr__format(key, sizeof key, "k%d", 9 - i);
        pr__format(id, sizeof id, "019b0000-0000-7000-8000-00000000000%d", i + 1);
        saga_start(store_at(fix, 0), key, id, "{}");
    }
}

void case_a_list_is_filtered_and_paged(void **state)
{
    store_fixture *fix = *state;
    char text[256];
    pr_saga_list_page page;
    start_five(fix);
    assert_true(saga_lease_now(store_at(fix, 0), "k9", TOKEN_1, 60000));
    pr__saga_save save = saga_state(INSTANCE_2, 1, "{}");
    save.complete = true;
    assert_true(saga_save_now(store_at(fix, 0), "k8", &save));
    const struct {
        const char *label;
        pr_saga_list_options opt;
        const char *wanted;
        bool more;
    } cases[] = {
        {"all", {.limit = 0}, "k9,k8,k7,k6,k5", false},
        {"two", {.limit = 2}, "k9,k8", true},
        {"the next two", {.limit = 2, .after = INSTANCE_2}, "k7,k6", true},
        {"exactly all", {.limit = 5}, "k9,k8,k7,k6,k5", false},
        {"running", {.phase = PR_SAGA_RUNNING}, "k9,k7,k6,k5", false},
        {"completed", {.phase = PR_SAGA_COMPLETED}, "k8", false},
        {"leased", {.leased = 1}, "k9", false},
        {"type", {.saga_type = "claim"}, "", false},
        {"tenant", {.tenant = "acme"}, "", false},
        {"no tenant", {.tenant = "", .saga_type = SAGA_TYPE}, "k9,k8,k7,k6,k5", false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        seen all = {0};
        list(fix, cases[i].opt, &all, &page);
        if (strcmp(joined(&all, text), cases[i].wanted) != 0)
            fail_msg("case '%s': wanted %s, got %s", cases[i].label, cases[i].wanted, text);
        CHECK_CASE((page.next[0] != '\0') == cases[i].more, cases[i].label);
        CHECK_CASE(page.count == all.count, cases[i].label);
    }
    seen stopped = {.stop_after = 1};
    list(fix, (pr_saga_list_options){.limit = 0}, &stopped, &page);
    assert_int_equal(page.count, 1);
    assert_string_equal(page.next, INSTANCE_1);
    assert_string_equal(stopped.owner, "worker");
    const pr_saga_list_options bad[] = {
        {.limit = 1001}, {.phase = 3}, {.leased = 2}, {.after = "x"}};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        pr_error err = PR_ERROR_INIT;
        pr_saga_list_options opt = bad[i];
        opt.size = (uint32_t)sizeof opt;
        check_error(pr_operations_sagas(store_at(fix, 0), &opt, NULL, look, &stopped, &err), &err,
                    PR_E_INVALID, "", "refused");
    }
}

void case_one_damaged_saga_costs_one_row(void **state)
{
    store_fixture *fix = *state;
    char text[256];
    pr_saga_list_page page;
    seen all = {0};
    start_five(fix);
    run_sql(fix, "UPDATE {p}_saga SET timeouts = '[{' WHERE correlation_key = 'k7'");
    list(fix, (pr_saga_list_options){.limit = 0}, &all, &page);
    assert_string_equal(joined(&all, text), "k9,k8,k7,k6,k5");
    assert_string_equal(all.unreadable, "its open timeouts are no JSON array");
    pr_error err = PR_ERROR_INIT;
    seen one = {0};
    check_ok(pr_operations_saga_show(store_at(fix, 0), NULL, SAGA_TYPE, "k7", look, &one, &err),
             &err, "show");
    assert_string_equal(one.unreadable, "its open timeouts are no JSON array");
    assert_string_equal(one.timeouts, "[]");
}

void case_show_gives_the_state(void **state)
{
    store_fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    seen all = {0};
    saga_start(store_at(fix, 0), "k", INSTANCE_1, "{\"n\":5}");
    check_error(pr_operations_saga_show(store_at(fix, 0), "acme", SAGA_TYPE, "k", look, &all, &err),
                &err, PR_E_NOT_FOUND, "there is no saga \"k\" of type \"order\"", "other tenant");
    assert_int_equal(all.count, 0);
    check_ok(pr_operations_saga_show(store_at(fix, 0), NULL, SAGA_TYPE, "k", look, &all, &err),
             &err, "show");
    assert_string_equal(all.state, "{\"n\":5}");
    assert_int_equal(all.last.version, 1);
    assert_int_equal(all.last.completed_at_us, 0);
    assert_null(all.last.lease_owner);
    assert_null(all.last.unreadable);
}

static uint64_t sweep(store_fixture *fix, int64_t retention_ms, uint32_t max)
{
    uint64_t count = 0;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_operations_saga_sweep(store_at(fix, 0), retention_ms, max, &count, &err), &err,
             "sweep");
    return count;
}

void case_a_sweep_takes_old_tombstones_only(void **state)
{
    store_fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    start_five(fix);
    for (int i = 0; i < 3; i++) {
        char key[16], id[PR_UUID_TEXT_SIZE];
        pr__format(key, sizeof key, "k%d", 9 - i);
        pr__format(id, sizeof id, "019b0000-0000-7000-8000-00000000000%d", i + 1);
        pr__saga_save save = saga_state(id, 1, "{}");
        save.complete = true;
        assert_true(saga_save_now(store_at(fix, 0), key, &save));
    }
    check_error(pr_operations_saga_sweep(store_at(fix, 0), 0, 1, NULL, &err), &err, PR_E_INVALID,
                "retention_ms", "no retention");
    err = (pr_error)PR_ERROR_INIT;
    check_error(pr_operations_saga_sweep(store_at(fix, 0), 1, 10001, NULL, &err), &err,
                PR_E_INVALID, "max", "too many");
    assert_int_equal(sweep(fix, 3600000, 100), 0);
    pass_ms(fix, 3700000);
    assert_int_equal(sweep(fix, 3600000, 2), 2);
    check_sql(fix, "SELECT count(*) FROM {p}_saga WHERE correlation_key = 'k7'", "1",
              "oldest first");
    assert_int_equal(sweep(fix, 3600000, 2), 1);
    assert_int_equal(sweep(fix, 3600000, 2), 0);
    check_sql(fix, "SELECT count(*) FROM {p}_saga", "2", "what runs stays");
}

void case_a_tombstone_with_a_lease_stays(void **state)
{
    store_fixture *fix = *state;
    pr_error err = PR_ERROR_INIT;
    saga_start(store_at(fix, 0), "k", INSTANCE_1, "{}");
    assert_true(saga_lease_now(store_at(fix, 0), "k", TOKEN_1, 1000));
    pass_ms(fix, 1500);
    pr__saga_save save = saga_state(INSTANCE_1, 1, "{}"); /* an event moves it, the lease is dead */
    save.complete = true;
    assert_true(saga_save_now(store_at(fix, 1), "k", &save));
    pass_ms(fix, 100000);
    assert_int_equal(sweep(fix, 1000, 10), 0);
    check_ok(release(store_at(fix, 0), "k", 0, "its worker is gone", &err), &err, "release");
    assert_int_equal(sweep(fix, 1000, 10), 1);
}
