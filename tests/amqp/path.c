/*
 * The whole way, put together.
 */
#include "amqp/path.h"

#include <sqlite3.h>
#include <unistd.h>

#include <libpq-fe.h>

#include <postroom/postgres.h>
#include <postroom/sqlite.h>

static void check_here(pr_status status, const pr_error *err, const char *what)
{
    rig_check_text(err->message);
    check_ok(status, err, what);
}

/* --- the handler -------------------------------------------------------------------------------*/

static bool write_effect(const path *of, pr_unit *unit, const char *id)
{
    char sql[120];
    snprintf(sql, sizeof sql, "INSERT INTO effects (id) VALUES ('%.40s')", id);
    if (strcmp(of->provider->kind, "sqlite") == 0)
        return sqlite3_exec(pr_sqlite_unit_connection(unit), sql, NULL, NULL, NULL) == SQLITE_OK;
    PGresult *result = PQexec(pr_postgres_unit_connection(unit), sql);
    bool good = PQresultStatus(result) == PGRES_COMMAND_OK;
    PQclear(result);
    return good;
}

static pr_handled handle(void *user, pr_scope *scope)
{
    path_runner *runner = user;
    path *of = runner->of;
    atomic_fetch_add(&of->calls, 1);
    atomic_fetch_add(&of->holding, 1);
    while (atomic_load(&of->hold))
        usleep(1000);
    atomic_fetch_sub(&of->holding, 1);
    return write_effect(of, pr_scope_unit(scope), pr_scope_message(scope)->id) ? PR_HANDLED_OK
                                                                               : PR_HANDLED_RETRY;
}

/* --- what runs ---------------------------------------------------------------------------------*/

static void *run(void *user)
{
    path_runner *runner = user;
    pr_error err = PR_ERROR_INIT;
    pr_status status =
        runner->relay ? pr_relay_run(runner->relay, &err) : pr_endpoint_run(runner->endpoint, &err);
    if (status != PR_OK) {
        fprintf(stderr, "a loop ended: %s\n", err.message);
        abort();
    }
    return NULL;
}

static void prepare(path *of, path_runner *runner)
{
    pr_error err = PR_ERROR_INIT;
    const pr_amqp_options options = PR_AMQP_OPTIONS(.flags = PR_AMQP_DECLARE);
    *runner = (path_runner){.of = of};
    check_here(of->provider->open(of->world, NULL, &runner->store, &err), &err, "a store");
    check_here(pr_amqp_transport_new(of->at->uri, &options, &runner->transport, &err), &err,
               "a transport");
}

static void start(path_runner *runner)
{
    assert_int_equal(pthread_create(&runner->thread, NULL, run, runner), 0);
    runner->runs = true;
}

void path_relay_start(path *of)
{
    pr_error err = PR_ERROR_INIT;
    const pr_relay_options options = PR_RELAY_OPTIONS(.owner = "path", .stop_grace_ms = 2000);
    prepare(of, &of->relay);
    check_here(
        pr_relay_new(of->relay.store, &of->relay.transport, 1, &options, &of->relay.relay, &err),
        &err, "a relay");
    start(&of->relay);
}

void path_endpoint_start(path *of, size_t which)
{
    static const char *const types[] = {RIG_TYPE};
    pr_error err = PR_ERROR_INIT;
    path_runner *runner = &of->endpoints[which];
    prepare(of, runner);
    const pr_endpoint_options options =
        PR_ENDPOINT_OPTIONS(.id = "billing", .types = types, .type_count = 1, .handler = handle,
                            .user = runner, .stop_grace_ms = 5000);
    check_here(pr_endpoint_new(runner->store, runner->transport, &options, &runner->endpoint, &err),
               &err, "an endpoint");
    start(runner);
}

void path_stop(path_runner *runner)
{
    if (runner->runs) {
        if (runner->relay)
            pr_relay_stop(runner->relay);
        else
            pr_endpoint_stop(runner->endpoint);
        pthread_join(runner->thread, NULL);
    }
    pr_relay_free(runner->relay);
    pr_endpoint_free(runner->endpoint);
    pr_transport_free(runner->transport);
    pr_store_free(runner->store);
    *runner = (path_runner){.runs = false};
}

void path_begin(path *of, ground *at, const store_provider *provider)
{
    pr_error err = PR_ERROR_INIT;
    char none[8];
    *of = (path){.at = at, .provider = provider};
    check_here(provider->begin(NULL, &of->world, &err), &err, "a world");
    check_here(provider->open(of->world, NULL, &of->host, &err), &err, "a store");
    check_here(provider->ask(of->world, "CREATE TABLE effects (id text)", none, sizeof none, &err),
               &err, "a table");
}

void path_end(path *of)
{
    atomic_store(&of->hold, false);
    path_stop(&of->relay);
    for (size_t i = 0; i < COUNT_OF(of->endpoints); i++)
        path_stop(&of->endpoints[i]);
    pr_store_free(of->host);
    of->provider->end(of->world);
}

/* --- the test's own hands ----------------------------------------------------------------------*/

int64_t path_enqueue(path *of, unsigned count)
{
    int64_t longest = 0;
    for (unsigned i = 0; i < count; i++) {
        pr_error err = PR_ERROR_INIT;
        pr_unit *unit = NULL;
        char key[24];
        int64_t begun = rig_now_ms();
        snprintf(key, sizeof key, "order-%u", of->enqueued % 7);
        const pr_message message = PR_MESSAGE(.type = RIG_TYPE, .content_type = "text/plain",
                                              .destination = "rabbitmq://topic/" RIG_TYPE,
                                              .key = key, .body = "effect", .body_size_bytes = 6);
        check_here(pr_unit_begin(of->host, &unit, &err), &err, "begin");
        check_here(pr_unit_enqueue(unit, &message, NULL, &err), &err, "enqueue");
        check_here(pr_unit_commit(unit, NULL, &err), &err, "commit");
        pr_unit_free(unit);
        int64_t took = rig_now_ms() - begun;
        longest = took > longest ? took : longest;
        of->enqueued++;
    }
    return longest;
}

long path_number(path *of, const char *sql)
{
    char out[40];
    pr_error err = PR_ERROR_INIT;
    check_here(of->provider->ask(of->world, sql, out, sizeof out, &err), &err, sql);
    return strtol(out, NULL, 10);
}

void path_wait_effects(path *of, long wanted, int64_t ms, const char *label)
{
    int64_t until = rig_now_ms() + ms;
    for (long count; (count = path_number(of, "SELECT count(*) FROM effects")) < wanted;) {
        if (rig_now_ms() > until)
            fail_msg("case '%s': %ld effects of %ld; relay: %s", label, count, wanted,
                     path_relay_snapshot(of).health_reason);
        usleep(20000);
    }
}

void path_check_whole(path *of, const char *label)
{
    path_wait_effects(of, (long)of->enqueued, 30000, label);
    CHECK_CASE(path_number(of, "SELECT count(*) FROM effects") == (long)of->enqueued, label);
    CHECK_CASE(path_number(of, "SELECT count(DISTINCT id) FROM effects") == (long)of->enqueued,
               label);
    CHECK_CASE(path_number(of, "SELECT count(*) FROM {p}_outbox_parked") == 0, label);
    CHECK_CASE(path_number(of, "SELECT count(*) FROM {p}_inbox_parked") == 0, label);
}

pr_relay_snapshot path_relay_snapshot(path *of)
{
    pr_error err = PR_ERROR_INIT;
    pr_relay_snapshot snapshot = {.size = (uint32_t)sizeof snapshot};
    if (of->relay.relay)
        check_here(pr_relay_snapshot_get(of->relay.relay, &snapshot, &err), &err, "snapshot");
    rig_check_text(snapshot.health_reason);
    return snapshot;
}
