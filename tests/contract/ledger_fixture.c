/*
 * The fixture of the store suite.
 */
#include "contract/ledger_fixture.h"

#include "support/enqueue.h"

static int setup(void **state, uint32_t lanes)
{
    const ledger_provider *const *shared = *state;
    fixture *fix = calloc(1, sizeof *fix);
    pr_error err = PR_ERROR_INIT;
    assert_non_null(fix);
    fix->provider = *shared;
    fix->random = 20260131;
    check_ok(fix->provider->begin(&fix->world, &err), &err, "begin");
    if (lanes > 0) {
        pr_migrate_options opt = {.size = (uint32_t)sizeof opt, .lanes = lanes};
        pr_store *store = NULL;
        check_ok(fix->provider->open(fix->world, true, &store, &err), &err, "open");
        check_ok(pr_store_migrate(store, &opt, NULL, &err), &err, "migrate");
        pr_store_free(store);
        run(fix, "CREATE TABLE orders (n INTEGER)");
    }
    *state = fix;
    return 0;
}

int fixture_setup(void **state)
{
    return setup(state, 16);
}

int fixture_setup_lane(void **state)
{
    return setup(state, 1);
}

int fixture_setup_bare(void **state)
{
    return setup(state, 0);
}

int fixture_teardown(void **state)
{
    fixture *fix = *state;
    for (size_t i = 0; i < STORES_MAX; i++)
        pr_store_free(fix->stores[i]);
    if (fix->host)
        fix->provider->host_close(fix->host);
    fix->provider->end(fix->world);
    free(fix);
    return 0;
}

pr_store *store_at(fixture *fix, size_t index)
{
    pr_error err = PR_ERROR_INIT;
    assert_true(index < STORES_MAX);
    if (!fix->stores[index]) {
        check_ok(fix->provider->open(fix->world, false, &fix->stores[index], &err), &err, "open");
        assert_string_equal(fix->stores[index]->ops->name, fix->provider->kind);
    }
    return fix->stores[index];
}

void *host_of(fixture *fix)
{
    if (!fix->host)
        fix->host = fix->provider->host_open(fix->world);
    assert_non_null(fix->host);
    return fix->host;
}

uint32_t random_below(fixture *fix, uint32_t limit)
{
    fix->random = fix->random * 1664525U + 1013904223U;
    return (fix->random >> 8) % limit;
}

void pass_ms(fixture *fix, int64_t ms)
{
    fix->provider->pass_ms(fix->world, ms);
}

int64_t count(fixture *fix, const char *sql)
{
    int64_t value = -1;
    if (!fix->provider->raw(fix->world, sql, &value))
        fail_msg("by other hands: %s", sql);
    return value;
}

void run(fixture *fix, const char *sql)
{
    (void)count(fix, sql);
}

int64_t rows(fixture *fix, const char *table)
{
    char sql[128];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM {t}%s", table);
    return count(fix, sql);
}

int64_t journal_rows(fixture *fix)
{
    return rows(fix, "outbox_claim");
}

int64_t in_state(fixture *fix, int64_t reader, const char *state)
{
    char sql[160];
    snprintf(sql, sizeof sql,
             "SELECT count(*) FROM {t}outbox_state WHERE reader = %lld AND state = '%s'",
             (long long)reader, state);
    return count(fix, sql);
}

letter letter_to(fixture *fix, const char *destination, const char *key)
{
    letter one = {.message = PR_MESSAGE(.type = TYPE_PLACED)};
    snprintf(one.body, sizeof one.body, "%u", ++fix->made);
    one.message.destination = destination;
    one.message.key = key;
    one.message.body_size_bytes = strlen(one.body);
    return one; /* the body moves with it: whoever sends it sets message.body */
}

void post_message(fixture *fix, const pr_message *message)
{
    enqueue_and_commit(store_at(fix, 0), message);
}

uint32_t post(fixture *fix, const char *destination, const char *key)
{
    letter one = letter_to(fix, destination, key);
    one.message.body = one.body;
    post_message(fix, &one.message);
    return fix->made;
}

void post_many(fixture *fix, uint32_t number, const char *destination, const char *key)
{
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = NULL;
    check_ok(pr_unit_begin(store_at(fix, 0), &unit, &err), &err, "begin");
    for (uint32_t i = 0; i < number; i++) {
        letter one = letter_to(fix, destination, key);
        one.message.body = one.body;
        check_ok(pr_unit_enqueue(unit, &one.message, NULL, &err), &err, "enqueue");
    }
    check_ok(pr_unit_commit(unit, NULL, &err), &err, "commit");
    pr_unit_free(unit);
}

uint32_t number_of(const pr__item *item)
{
    char text[32] = "";
    assert_true(item->message.body_size_bytes < sizeof text);
    memcpy(text, item->message.body, (size_t)item->message.body_size_bytes);
    return (uint32_t)strtoul(text, NULL, 10);
}

pr__claim_options claim_options(int64_t reader, uint32_t batch_max)
{
    return (pr__claim_options){.reader = reader,
                               .lease_ms = LEASE_MS,
                               .batch_max = batch_max,
                               .bytes_max = 1024 * 1024,
                               .owner = "suite"};
}

pr__batch *claim(fixture *fix, pr_store *store, int64_t reader, uint32_t batch_max)
{
    pr_error err = PR_ERROR_INIT;
    pr__claim_options opt = claim_options(reader, batch_max);
    pr__batch *batch = NULL;
    (void)fix;
    check_ok(pr__store_claim(store, &opt, &batch, &err), &err, "claim");
    return batch;
}

pr__batch *claim_some(fixture *fix, pr_store *store, int64_t reader, uint32_t batch_max)
{
    pr__batch *batch = claim(fix, store, reader, batch_max);
    assert_non_null(batch);
    return batch;
}

pr__batch *claim_parked(fixture *fix, pr_store *store, int64_t reader, uint32_t batch_max)
{
    pr_error err = PR_ERROR_INIT;
    pr__claim_options opt = claim_options(reader, batch_max);
    pr__batch *batch = NULL;
    (void)fix;
    check_ok(pr__store_claim_parked(store, &opt, &batch, &err), &err, "claim parked");
    return batch;
}

void set_all(pr__batch *batch, pr__result result)
{
    for (uint32_t i = 0; i < batch->item_count; i++)
        batch->items[i].result = result;
}

pr__item *item_of(pr__batch *batch, uint32_t number)
{
    for (uint32_t i = 0; i < batch->item_count; i++)
        if (number_of(&batch->items[i]) == number)
            return &batch->items[i];
    fail_msg("message %u is not in the batch of %u", number, batch->item_count);
    return NULL;
}

pr__settle_report settle(fixture *fix, pr_store *store, pr__batch *batch)
{
    pr_error err = PR_ERROR_INIT;
    pr__settle_report report = {0};
    (void)fix;
    pr__batch_close(batch);
    check_ok(pr__store_settle(store, batch, NULL, &report, NULL, &err), &err, "settle");
    return report;
}

pr__settle_report settle_free(fixture *fix, pr_store *store, pr__batch *batch)
{
    pr__settle_report report = settle(fix, store, batch);
    pr__batch_free(batch);
    return report;
}

int64_t due_ms(fixture *fix, pr_store *store, int64_t reader)
{
    pr_error err = PR_ERROR_INIT;
    int64_t ms = -2;
    (void)fix;
    check_ok(pr__store_parked_due(store, reader, &ms, &err), &err, "parked_due");
    return ms;
}

int64_t open_reader(fixture *fix, pr_store *store, const char *name, const char *destination,
                    pr_order order)
{
    pr_error err = PR_ERROR_INIT;
    int64_t reader = 0;
    pr__reader_spec spec = {
        .name = name, .destinations = &destination, .destination_count = 1, .order = order};
    (void)fix;
    check_ok(pr__store_reader_open(store, &spec, &reader, &err), &err, "reader_open");
    return reader;
}
