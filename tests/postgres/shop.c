/*
 * A shop on PostgreSQL in one process.
 */
#include "postgres/shop.h"

#include "base/time.h"

#define LEASE_MS 300

static int64_t wall_us(void *user)
{
    const shop *of = user;
    return pr__wall_us() + of->wall_offset_us + of->skipped_us;
}

static int64_t monotonic_us(void *user)
{
    return pr__monotonic_us() + ((const shop *)user)->skipped_us;
}

static pr_handled handle(void *user, pr_scope *scope)
{
    shop *of = user;
    const pr_message *message = pr_scope_message(scope);
    const char *values[] = {message->id, message->key};
    PGconn *db = pr_postgres_unit_connection(pr_scope_unit(scope));
    PGresult *result = PQexecParams(db, "INSERT INTO public.effects (id, key) VALUES ($1, $2)", 2,
                                    NULL, values, NULL, NULL, 0);
    bool written = PQresultStatus(result) == PGRES_COMMAND_OK;
    PQclear(result);
    of->refused += written ? 0 : 1;
    bool bad = message->body_size_bytes == 8 && memcmp(message->body, "once-bad", 8) == 0;
    return written && !(bad && pr_scope_attempts(scope) == 0) ? PR_HANDLED_OK : PR_HANDLED_RETRY;
}

void shop_prepare(const char *uri)
{
    db_run_at(uri, "CREATE TABLE effects (n integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
                   "id text NOT NULL, key text, at timestamptz DEFAULT clock_timestamp())");
}

static pr_store *open_store(shop *of, const char *uri)
{
    pr_error err = PR_ERROR_INIT;
    pr_postgres_options options =
        PR_POSTGRES_OPTIONS(.conninfo = uri, .clock = &of->clock, .busy_ms = 2000);
    pr_store *store = NULL;
    check_ok(pr_postgres_store_open(&options, &store, &err), &err, "open");
    assert_string_equal(store->ops->name, "postgres");
    return store;
}

static pr_transport *open_transport(shop *of)
{
    pr_error err = PR_ERROR_INIT;
    pr_memory_options options = {.size = (uint32_t)sizeof options, .clock = &of->clock};
    pr_transport *transport = NULL;
    check_ok(pr_memory_transport_new(of->broker, &options, &transport, &err), &err, "transport");
    return transport;
}

void shop_open(shop *of, const char *relay_uri, const char *endpoint_uri)
{
    static const char *const types[] = {TYPE_PLACED};
    pr_error err = PR_ERROR_INIT;
    of->clock = (pr_clock){(uint32_t)sizeof of->clock, wall_us, monotonic_us, of};
    of->relay_store = open_store(of, relay_uri);
    of->endpoint_store = open_store(of, endpoint_uri);
    check_ok(pr_memory_broker_new(&of->broker, &err), &err, "broker");
    of->sender = open_transport(of);
    of->receiver = open_transport(of);
    of->direct = open_transport(of);
    check_ok(pr_transport_open(of->sender, 1000, &err), &err, "open");
    check_ok(pr_transport_open(of->direct, 1000, &err), &err, "open");
    pr_endpoint_options endpoint =
        PR_ENDPOINT_OPTIONS(.id = "billing", .types = types, .type_count = 1, .handler = handle,
                            .user = of, .lease_ms = LEASE_MS, .backoff_initial_ms = 1,
                            .backoff_max_ms = 1, .jitter_percent = PR_JITTER_NONE, .poll_ms = 1,
                            .clock = &of->clock);
    check_ok(pr_endpoint_new(of->endpoint_store, of->receiver, &endpoint, &of->endpoint, &err),
             &err, "endpoint");
    pr_relay_options relay = PR_RELAY_OPTIONS(.clock = &of->clock, .lease_ms = LEASE_MS);
    check_ok(pr_relay_new(of->relay_store, &of->sender, 1, &relay, &of->relay, &err), &err,
             "relay");
    shop_step_endpoint(of); /* subscribes */
}

void shop_close(shop *of)
{
    /* a relay that is freed before its transport has answered leaks what is on its way */
    pr_relay_stop(of->relay);
    assert_int_equal(pr_relay_run(of->relay, NULL), PR_OK);
    pr_relay_free(of->relay);
    pr_endpoint_free(of->endpoint);
    pr_transport_free(of->receiver);
    pr_transport_free(of->sender);
    pr_transport_free(of->direct);
    pr_memory_broker_free(of->broker);
    pr_store_free(of->endpoint_store);
    pr_store_free(of->relay_store);
}

/* The host waits no time of its own; the server gets a moment. */
static bool waited(shop *of, int64_t wait_ms)
{
    if (wait_ms <= 0)
        return false;
    of->skipped_us += wait_ms * 1000;
    sleep_ms(1);
    return true;
}

bool shop_step_endpoint(shop *of)
{
    int64_t wait_ms = 0;
    pr_status status = pr_endpoint_step(of->endpoint, &wait_ms, NULL);
    return !waited(of, wait_ms) && status == PR_OK;
}

bool shop_step_relay(shop *of)
{
    int64_t wait_ms = 0;
    pr_status status = pr_relay_step(of->relay, &wait_ms, NULL);
    return !waited(of, wait_ms) && status == PR_OK;
}

pr_endpoint_snapshot shop_endpoint_snapshot(const shop *of)
{
    pr_endpoint_snapshot snapshot = {.size = (uint32_t)sizeof snapshot};
    assert_int_equal(pr_endpoint_snapshot_get(of->endpoint, &snapshot, NULL), PR_OK);
    return snapshot;
}

void shop_deliver(shop *of, const char *id, const char *key, const char *body)
{
    pr_error err = PR_ERROR_INIT;
    pr_message message = PR_MESSAGE(.id = id, .type = TYPE_PLACED, .type_version = 1,
                                    .content_type = "application/json", .destination = SHOP_TOPIC,
                                    .key = key, .body = body, .body_size_bytes = strlen(body),
                                    .occurred_at_us = 1767225600000000);
    pr_submission submission = {.ticket = 1, .message = &message};
    pr_submitted outcome = {0};
    size_t count = 0;
    check_ok(pr_transport_submit(of->direct, &submission, 1, &count, &err), &err, "submit");
    check_ok(pr_transport_poll(of->direct, 1000, &outcome, 1, &count, &err), &err, "poll");
    assert_int_equal(outcome.outcome, PR_SUBMIT_CONFIRMED);
}
