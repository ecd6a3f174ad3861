/*
 * A saga of the tests' own, and endpoints that run it.
 */
#include "contract/saga_world.h"

#include <unistd.h>

#include <postroom/database.h>

#include "base/text.h"
#include "base/time.h"

#define QUIET_STEP_US 1000
#define RUN_MAX_US    INT64_C(400000000) /* the test itself has a limit */

int saga_setup(void **state)
{
    pr_migrate_options opt = {.size = (uint32_t)sizeof opt, .default_transport = "local"};
    return store_setup_with(state, &opt);
}

/* ---- the type ---- */

static const pr_field message_fields[] = {
    {.name = "key", .kind = PR_FIELD_TEXT, .offset = offsetof(tally_message, key)},
    {.name = "n", .kind = PR_FIELD_INT64, .offset = offsetof(tally_message, n)},
    {.name = "note", .kind = PR_FIELD_TEXT, .offset = offsetof(tally_message, note)},
    {.name = NULL},
};

static const pr_field state_fields[] = {
    {.name = "sum", .kind = PR_FIELD_INT64, .offset = offsetof(tally, sum)},
    {.name = "steps", .kind = PR_FIELD_INT64, .offset = offsetof(tally, steps)},
    {.name = "note", .kind = PR_FIELD_TEXT, .offset = offsetof(tally, note)},
    {.name = "done", .kind = PR_FIELD_BOOL, .offset = offsetof(tally, done)},
    {.name = NULL},
};

static const pr_field newer_fields[] = {
    {.name = "total", .kind = PR_FIELD_INT64, .offset = offsetof(tally, sum)},
    {.name = "steps", .kind = PR_FIELD_INT64, .offset = offsetof(tally, steps)},
    {.name = "note", .kind = PR_FIELD_TEXT, .offset = offsetof(tally, note)},
    {.name = "done", .kind = PR_FIELD_BOOL, .offset = offsetof(tally, done)},
    {.name = NULL},
};

#define MESSAGE(urn)                                                                               \
    {                                                                                              \
        .size = (uint32_t)sizeof(pr_contract), .type = (urn), .type_version = 1,                   \
        .kind = PR_CONTRACT_INTEGRATION_EVENT, .fields = message_fields,                           \
        .object_size = sizeof(tally_message)                                                       \
    }

static const pr_contract message_contracts[] = {
    MESSAGE(TALLY_OPENED), MESSAGE(TALLY_ADDED),  MESSAGE(TALLY_CLOSED),
    MESSAGE(TALLY_ARMED),  MESSAGE(TALLY_CALMED), MESSAGE(TALLY_GROWN),
    MESSAGE(TALLY_FAILED), MESSAGE(TALLY_ORDERS), MESSAGE(TALLY_ASKED),
};

static const pr_contract state_contracts[] = {
    {.size = (uint32_t)sizeof(pr_contract),
     .type = "urn:message:tally:state",
     .type_version = 1,
     .kind = PR_CONTRACT_DOMAIN_EVENT,
     .fields = state_fields,
     .object_size = sizeof(tally)},
    {.size = (uint32_t)sizeof(pr_contract),
     .type = "urn:message:tally:state",
     .type_version = 2,
     .kind = PR_CONTRACT_DOMAIN_EVENT,
     .fields = newer_fields,
     .object_size = sizeof(tally)},
};

static pr_status upcast(void *user, const void *older, void *newer, pr_decoded *decoded,
                        pr_error *err)
{
    (void)user;
    (void)err;
    tally *to = newer;
    *to = *(const tally *)older;
    char *note = pr_decoded_alloc(decoded, 8);
    if (note)
        memcpy(note, "raised", 6);
    to->note = note;
    return note ? PR_OK : PR_E_NOMEM;
}

static pr_handled tell(pr_saga_step *step, const tally *state)
{
    char body[160];
    pr__format(body, sizeof body, "{\"key\":\"%s\",\"sum\":%lld}", pr_saga_step_key(step),
               (long long)state->sum);
    pr_message message =
        PR_MESSAGE(.type = TALLY_TOLD, .body = body, .body_size_bytes = strlen(body));
    pr_error err = PR_ERROR_INIT;
    if (pr_unit_enqueue(pr_saga_step_unit(step), &message, NULL, &err) != PR_OK) {
        pr_scope_fail(pr_saga_step_scope(step), err.message, -1);
        return PR_HANDLED_RETRY;
    }
    return PR_HANDLED_OK;
}

static pr_handled moved(pr_saga_step *step, tally *state)
{
    if (!state->note)
        state->note = "";
    state->steps++;
    return tell(step, state);
}

static const tally_message *message_of(pr_saga_step *step)
{
    return pr_scope_object(pr_saga_step_scope(step));
}

static pr_handled on_added(void *user, pr_saga_step *step, void *object)
{
    (void)user;
    tally *state = object;
    state->sum += message_of(step)->n;
    return moved(step, state);
}

static pr_handled on_closed(void *user, pr_saga_step *step, void *object)
{
    (void)user;
    tally *state = object;
    state->done = true;
    return moved(step, state);
}

static pr_handled on_armed(void *user, pr_saga_step *step, void *object)
{
    (void)user;
    pr_error err = PR_ERROR_INIT;
    const tally_message *message = message_of(step);
    if (pr_saga_timeout_set(step, message->note, message->n, &err) != PR_OK) {
        pr_scope_fail(pr_saga_step_scope(step), err.message, -1);
        return PR_HANDLED_PERMANENT;
    }
    return moved(step, object);
}

static pr_handled on_calmed(void *user, pr_saga_step *step, void *object)
{
    (void)user;
    (void)pr_saga_timeout_cancel(step, message_of(step)->note);
    return moved(step, object);
}

static pr_handled on_grown(void *user, pr_saga_step *step, void *object)
{
    (void)user;
    tally *state = object;
    size_t size = (size_t)message_of(step)->n;
    char *note = pr_saga_step_alloc(step, size + 1);
    if (!note)
        return PR_HANDLED_RETRY;
    memset(note, 'x', size);
    state->note = note;
    return moved(step, state);
}

static pr_handled on_failed(void *user, pr_saga_step *step, void *object)
{
    (void)user;
    tally *state = object;
    state->sum = -1;
    (void)moved(step, state);
    pr_scope_fail(pr_saga_step_scope(step), "told to fail", -1);
    return PR_HANDLED_PERMANENT;
}

/* The text is gone from the stack when the state is saved. */
static pr_handled on_asked(void *user, pr_saga_step *step, void *object)
{
    (void)user;
    tally *state = object;
    char note[64];
    pr__format(note, sizeof note, "%s %lld %lld", pr_saga_step_instance_id(step),
               (long long)pr_saga_step_version(step), (long long)pr_saga_step_now_us(step));
    state->note = pr_saga_step_text(step, note);
    memset(note, '?', sizeof note);
    if (message_of(step)->n == 1)
        pr_saga_step_complete(step);
    return moved(step, state);
}

static pr_handled on_ring(void *user, pr_saga_step *step, void *object)
{
    (void)user;
    tally *state = object;
    state->sum += 1000;
    return moved(step, state);
}

static bool is_done(void *user, const void *object)
{
    (void)user;
    return ((const tally *)object)->done;
}

static pr_handled on_missing(void *user, pr_scope *scope, const char *key)
{
    (void)user;
    (void)key;
    pr_scope_fail(scope, "nobody is there", -1);
    return PR_HANDLED_PERMANENT;
}

#define BY_KEY(urn, function, more)                                                                \
    {                                                                                              \
        .type = (urn), .handler = (function), .correlation_field = "key", .flags = (more)          \
    }

static const pr_saga_message messages[] = {
    BY_KEY(TALLY_OPENED, on_added, PR_SAGA_STARTS),
    BY_KEY(TALLY_ADDED, on_added, 0),
    BY_KEY(TALLY_CLOSED, on_closed, 0),
    BY_KEY(TALLY_ARMED, on_armed, 0),
    BY_KEY(TALLY_CALMED, on_calmed, 0),
    BY_KEY(TALLY_GROWN, on_grown, 0),
    BY_KEY(TALLY_FAILED, on_failed, 0),
    BY_KEY(TALLY_ASKED, on_asked, PR_SAGA_STARTS),
};

static const pr_saga_timeout timeouts[] = {{"ring", on_ring}, {"close", on_closed}};
static const pr_saga_state states[] = {{&state_contracts[0], NULL}, {&state_contracts[1], upcast}};

static void make_saga(const tally_options *opt, tally_worker *worker)
{
    pr_error err = PR_ERROR_INIT;
    static const tally_options none = {.grace_ms = 0};
    const tally_options *with = opt ? opt : &none;
    pr_saga_type type =
        PR_SAGA_TYPE(.name = TALLY_ID, .states = states, .state_count = with->newer ? 2 : 1,
                     .messages = messages, .message_count = COUNT_OF(messages),
                     .timeouts = timeouts, .timeout_count = COUNT_OF(timeouts),
                     .timeout_type = TALLY_TIMEOUT, .complete = is_done, .on_missing = on_missing,
                     .state_size_max = TALLY_SIZE);
    type.reuse = with->reuse;
    type.missing = with->missing;
    type.timeout_grace_ms = with->grace_ms;
    check_ok(pr_contracts_new(&worker->contracts, &err), &err, "contracts");
    for (size_t i = 0; i < COUNT_OF(message_contracts); i++)
        check_ok(pr_contracts_register(worker->contracts, &message_contracts[i], &err), &err,
                 message_contracts[i].type);
    check_ok(pr_saga_new(&type, worker->contracts, &worker->saga, &err), &err, "saga");
}

/* ---- workers ---- */

void tally_open(store_fixture *fix, const tally_options *opt, tally_worker *worker)
{
    static const char *const types[] = {TALLY_OPENED, TALLY_ADDED,  TALLY_CLOSED, TALLY_ARMED,
                                        TALLY_CALMED, TALLY_GROWN,  TALLY_FAILED, TALLY_ORDERS,
                                        TALLY_ASKED,  TALLY_TIMEOUT};
    pr_error err = PR_ERROR_INIT;
    store_settings settings = {.clock = fix->provider->clock_given ? &fix->clock : NULL};
    *worker = (tally_worker){.store = NULL};
    make_saga(opt, worker);
    check_ok(fix->provider->open(fix->world, &settings, &worker->store, &err), &err, "store");
    check_ok(pr_database_transport_new(worker->store, NULL, &worker->transport, &err), &err,
             "transport");
    pr_endpoint_options endpoint =
        PR_ENDPOINT_OPTIONS(.id = TALLY_ID, .types = types, .type_count = COUNT_OF(types),
                            .contracts = worker->contracts, .handler = pr_saga_handle,
                            .user = worker->saga, .backoff_initial_ms = 20, .backoff_max_ms = 100,
                            .jitter_percent = PR_JITTER_NONE, .lease_ms = 500, .poll_ms = 2,
                            .prefetch = 4, .batch_max = opt ? opt->batch_max : 0);
    check_ok(pr_endpoint_new(worker->store, worker->transport, &endpoint, &worker->endpoint, &err),
             &err, "endpoint");
}

void tally_close(tally_worker *worker)
{
    pr_endpoint_free(worker->endpoint);
    pr_transport_free(worker->transport);
    pr_saga_free(worker->saga);
    pr_contracts_free(worker->contracts);
    pr_store_free(worker->store);
    *worker = (tally_worker){.store = NULL};
}

pr_saga_snapshot tally_counters(tally_worker *worker)
{
    pr_saga_snapshot counters = {.size = (uint32_t)sizeof counters};
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_saga_snapshot_get(worker->saga, &counters, &err), &err, "counters");
    return counters;
}

pr_endpoint_snapshot tally_endpoint(tally_worker *worker)
{
    pr_endpoint_snapshot snapshot = {.size = (uint32_t)sizeof snapshot};
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_endpoint_snapshot_get(worker->endpoint, &snapshot, &err), &err, "snapshot");
    return snapshot;
}

static uint64_t seen(tally_worker *worker)
{
    pr_endpoint_snapshot s = tally_endpoint(worker);
    return s.received + s.handled + s.duplicate + s.failed + s.dead + s.held + s.conflict +
           s.fenced + s.requeued;
}

void tally_run(tally_worker *worker, int64_t quiet_ms)
{
    uint64_t last = seen(worker);
    int64_t began_us = pr__monotonic_us();
    int64_t quiet_since_us = began_us;
    /* steps are counted too: on a busy machine time goes by without any */
    for (int64_t idle = 0; idle < quiet_ms || pr__monotonic_us() - quiet_since_us < quiet_ms * 1000;
         idle++) {
        int64_t wait_ms = 0;
        pr_status ignored = pr_endpoint_step(worker->endpoint, &wait_ms, NULL);
        (void)ignored;
        if (wait_ms > 0)
            pr__sleep_us(QUIET_STEP_US);
        if (seen(worker) != last) {
            last = seen(worker);
            quiet_since_us = pr__monotonic_us();
            idle = 0;
        }
        if (pr__monotonic_us() - began_us > RUN_MAX_US)
            fail_msg("the endpoint does not come to rest");
    }
}

void tally_work(store_fixture *fix, int64_t quiet_ms)
{
    tally_worker worker;
    tally_open(fix, NULL, &worker);
    tally_run(&worker, quiet_ms);
    tally_close(&worker);
}

void tally_subscribe(store_fixture *fix)
{
    tally_worker worker;
    int64_t wait_ms = 0;
    pr_error err = PR_ERROR_INIT;
    tally_open(fix, NULL, &worker);
    check_ok(pr_endpoint_step(worker.endpoint, &wait_ms, &err), &err, "subscribe");
    tally_close(&worker);
}

/* ---- from outside ---- */

static void send(store_fixture *fix, const char *id, const char *type, const char *key, int64_t n,
                 const char *note, bool loose)
{
    char body[256];
    pr_error err = PR_ERROR_INIT;
    pr__format(body, sizeof body, "{\"key\":\"%s\",\"n\":%lld,\"note\":\"%s\"}", key, (long long)n,
               note ? note : "");
    pr_message message =
        PR_MESSAGE(.id = id, .type = type, .body = body, .body_size_bytes = strlen(body));
    if (!loose && key[0])
        message.key = key;
    pr_unit *unit = begin_unit(store_at(fix, 0));
    check_ok(pr_unit_enqueue(unit, &message, NULL, &err), &err, type);
    commit_unit(unit);
}

void tally_send_as(store_fixture *fix, const char *id, const char *type, const char *key, int64_t n,
                   const char *note)
{
    send(fix, id, type, key, n, note, false);
}

void tally_send(store_fixture *fix, const char *type, const char *key, int64_t n, const char *note)
{
    send(fix, NULL, type, key, n, note, false);
}

void tally_send_loose(store_fixture *fix, const char *id, const char *type, const char *key,
                      int64_t n)
{
    send(fix, id, type, key, n, NULL, true);
}

static bool read_record(void *user, const pr_saga_record *record)
{
    tally_row *row = user;
    row->found = true;
    row->version = record->version;
    row->updated_at_us = record->updated_at_us;
    row->completed = record->completed_at_us != 0;
    row->leased = record->lease_owner != NULL;
    pr__format(row->instance_id, sizeof row->instance_id, "%s", record->instance_id);
    pr__format(row->timeouts, sizeof row->timeouts, "%s", record->timeouts);
    pr__format(row->last_messages, sizeof row->last_messages, "%s", record->last_messages);
    const pr_contract *contract = &state_contracts[record->state_version == 2];
    pr_message message = PR_MESSAGE(.type = contract->type, .type_version = record->state_version,
                                    .content_type = "application/json", .body = record->state,
                                    .body_size_bytes = record->state_size_bytes);
    pr_decoded *decoded = NULL;
    if (pr_contract_decode(contract, &message, &decoded, NULL) == PR_OK) {
        row->state = *(const tally *)pr_decoded_object(decoded);
        pr__format(row->note, sizeof row->note, "%s", row->state.note);
        row->state.note = NULL;
    }
    pr_decoded_free(decoded);
    return true;
}

tally_row tally_read(store_fixture *fix, const char *key)
{
    tally_row row = {.found = false};
    pr_error err = PR_ERROR_INIT;
    pr_status status =
        pr_operations_saga_show(store_at(fix, 0), NULL, TALLY_ID, key, read_record, &row, &err);
    if (status != PR_E_NOT_FOUND)
        check_ok(status, &err, key);
    return row;
}

void tally_pass(store_fixture *fix, int64_t ms)
{
    uint32_t promoted = 0;
    int64_t next_ms = 0;
    pr_error err = PR_ERROR_INIT;
    pass_ms(fix, ms);
    check_ok(pr__store_promote(store_at(fix, 0), 1000, &promoted, &next_ms, &err), &err, "promote");
}

int64_t tally_number(store_fixture *fix, const char *sql)
{
    char text[64];
    int64_t number = 0;
    pr_error err = PR_ERROR_INIT;
    check_ok(fix->provider->ask(fix->world, sql, text, sizeof text, &err), &err, sql);
    if (!pr__parse_int64(text, INT64_MIN, INT64_MAX, &number))
        fail_msg("'%s' is no number, of: %s", text, sql);
    return number;
}
