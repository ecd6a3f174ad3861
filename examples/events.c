/*
 * Domain events: an order raises what happened to it and is saved; the events are encoded by their
 * contract and enqueued with the commit, and stay with the order when the commit fails.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <sqlite3.h>

#include <postroom/postroom.h>
#include <postroom/sqlite.h>

#define PLACED "urn:message:shop:order-placed"

typedef struct order {
    pr_event_source events; /* embedded: this is all that an aggregate needs */
    int64_t number;
} order;

typedef struct placed {
    int64_t number;
    int64_t total_cents;
} placed;

static const pr_field placed_fields[] = {
    {.name = "number", .kind = PR_FIELD_INT64, .offset = offsetof(placed, number)},
    {.name = "totalCents", .kind = PR_FIELD_INT64, .offset = offsetof(placed, total_cents)},
    {.name = NULL},
};
static const pr_contract placed_contract =
    PR_CONTRACT(.type = PLACED, .type_version = 1, .kind = PR_CONTRACT_DOMAIN_EVENT,
                .fields = placed_fields, .object_size = sizeof(placed));

static void must(pr_status status, const char *what, const pr_error *err)
{
    if (status == PR_OK)
        return;
    fprintf(stderr, "%s: %s (%s)\n", what, err->message, pr_status_text(status));
    exit(EXIT_FAILURE);
}

static void place(order *self, int64_t number, int64_t total_cents, pr_error *err)
{
    placed event = {.number = number, .total_cents = total_cents};
    self->number = number;
    must(pr_event_source_raise(&self->events, PLACED, 1, "order-1", &event, sizeof(event), err),
         "raise", err);
}

/* Save the order in one unit; its events go with it. */
static void save(pr_store *store, const pr_contracts *contracts, order *self, int commit,
                 pr_error *err)
{
    pr_unit *unit = NULL;
    must(pr_unit_begin(store, &unit, err), "begin", err);
    must(pr_unit_track(unit, &self->events, contracts, err), "track", err);
    sqlite3_exec(pr_sqlite_unit_connection(unit), "INSERT INTO orders VALUES (1)", NULL, NULL,
                 NULL);
    must(commit ? pr_unit_commit(unit, NULL, err) : pr_unit_rollback(unit, err), "end", err);
    pr_unit_free(unit);
    printf("%s: %d events left\n", commit ? "committed" : "rolled back", (int)self->events.count);
}

static int print_row(void *user, int count, char **values, char **names)
{
    (void)user;
    (void)names;
    for (int i = 0; i < count; i++)
        printf("%s%s", values[i], i + 1 < count ? " " : "\n");
    return 0;
}

int main(void)
{
    pr_error err = PR_ERROR_INIT;
    pr_store *store = NULL;
    pr_contracts *contracts = NULL;
    sqlite3 *db = NULL;
    order first = {.number = 0};
    must(pr_sqlite_open("shop.db", &store, &err), "open", &err);
    must(pr_contracts_new(&contracts, &err), "contracts", &err);
    must(pr_contracts_register(contracts, &placed_contract, &err), "register", &err);
    sqlite3_open("shop.db", &db);
    sqlite3_exec(db, "CREATE TABLE orders (number INTEGER)", NULL, NULL, NULL);

    pr_event_source_init(&first.events);
    place(&first, 1, 1999, &err);
    save(store, contracts, &first, /* commit= */ 0, &err);
    save(store, contracts, &first, /* commit= */ 1, &err);
    sqlite3_exec(db, "SELECT type, key, CAST(body AS TEXT) FROM postroom_outbox", print_row, NULL,
                 NULL);

    pr_event_source_done(&first.events);
    sqlite3_close(db);
    pr_contracts_free(contracts);
    pr_store_free(store);
    return EXIT_SUCCESS;
}
