/*
 * The sending side of the database transport over a scripted store: which failure becomes which
 * outcome, how often each message is appended, and what the state says.
 */
#include "support/test.h"

#include <postroom/database.h>

#include "base/error.h"
#include "base/memory.h"
#include "port/store.h"

#define KEPT_MAX 512

/* What the other database does, and what it has seen. */
typedef struct script {
    pr_status begin; /* of unit_begin; PR_OK = it begins */
    pr_retry begin_retry;
    pr_outcome commit; /* 0 = committed */
    pr_status bad;     /* for messages whose body is "bad" */
    pr_retry bad_retry;
    bool exists; /* has every destination a reader */
    bool check_fails;
    pr_status exists_status;
    int transactions, commits, rollbacks, exists_calls, clones, doorbells, open_units, open_stores;
    char kept[KEPT_MAX][40]; /* ids, in the order of their commits */
    char destinations[KEPT_MAX][128];
    int kept_count;
    bool saw_caller_id, saw_deliver_at;
} script;

typedef struct fake_store {
    pr_store base;
    script *script;
} fake_store;

typedef struct fake_unit {
    pr_unit base;
    script *script;
    int first; /* kept_count at the begin */
} fake_unit;

static const pr__store_ops fake_ops;

static pr_status unit_enqueue(pr_unit *unit, pr__enqueue *messages, size_t count, pr_error *err)
{
    fake_unit *self = (fake_unit *)unit;
    script *now = self->script;
    for (size_t i = 0; i < count; i++) {
        const pr_message *message = messages[i].message;
        if (message->body_size_bytes == 3 && memcmp(message->body, "bad", 3) == 0)
            return pr__fail_retry(err, now->bad, now->bad_retry, "fake", "message %zu is bad", i);
    }
    for (size_t i = 0; i < count; i++) {
        const pr_message *message = messages[i].message;
        now->saw_caller_id = now->saw_caller_id || messages[i].caller_id;
        now->saw_deliver_at = now->saw_deliver_at || message->deliver_at_us != 0;
        snprintf(now->kept[now->kept_count], sizeof(now->kept[0]), "%s", message->id);
        snprintf(now->destinations[now->kept_count], sizeof(now->destinations[0]), "%s",
                 message->destination);
        now->kept_count++;
    }
    return PR_OK;
}

static pr_status unit_commit(pr_unit *unit, pr_outcome *ret_outcome, pr_error *err)
{
    script *now = ((fake_unit *)unit)->script;
    *ret_outcome = now->commit ? now->commit : PR_OUTCOME_COMMITTED;
    if (*ret_outcome == PR_OUTCOME_COMMITTED) {
        now->commits++;
        ((fake_unit *)unit)->first = now->kept_count;
        return PR_OK;
    }
    bool unknown = *ret_outcome == PR_OUTCOME_UNKNOWN;
    return pr__fail_retry(err, PR_E_BACKEND, unknown ? PR_RETRY_UNKNOWN : PR_RETRY_SAME, "fake",
                          unknown ? "the reply was lost" : "the disk is full");
}

static pr_status unit_rollback(pr_unit *unit, pr_error *err)
{
    (void)err;
    fake_unit *self = (fake_unit *)unit;
    self->script->kept_count = self->first;
    self->script->rollbacks++;
    return PR_OK;
}

static void unit_free(pr_unit *unit)
{
    fake_unit *self = (fake_unit *)unit;
    self->script->kept_count = self->first;
    self->script->open_units--;
    pr__free(self);
}

static const pr__unit_ops fake_unit_ops = {
    .enqueue = unit_enqueue, .commit = unit_commit, .rollback = unit_rollback, .free = unit_free};

static pr_status unit_begin(pr_store *store, pr_unit **ret_unit, pr_error *err)
{
    script *now = ((fake_store *)store)->script;
    now->transactions++;
    if (now->begin != PR_OK)
        return pr__fail_retry(err, now->begin, now->begin_retry, "fake", "no transaction now");
    fake_unit *unit = pr__alloc(sizeof(*unit));
    pr__unit_init(&unit->base, &fake_unit_ops, store, false);
    unit->script = now;
    unit->first = now->kept_count;
    now->open_units++;
    *ret_unit = &unit->base;
    return PR_OK;
}

static pr_status reader_exists(pr_store *store, const char *destination, bool *ret_exists,
                               pr_error *err)
{
    script *now = ((fake_store *)store)->script;
    now->exists_calls++;
    if (now->exists_status != PR_OK)
        return pr__fail_retry(err, now->exists_status, PR_RETRY_RECONNECT, "fake", "gone");
    *ret_exists = now->exists && !strstr(destination, "nobody");
    return PR_OK;
}

static void ring(void *user)
{
    ((script *)user)->doorbells++;
}

static pr_store *new_store(script *now)
{
    fake_store *store = pr__alloc(sizeof(*store));
    store->base = (pr_store){.ops = &fake_ops,
                             .clock = pr_clock_system(),
                             .random = pr_random_system(),
                             .body_size_max = 1000,
                             .doorbell = ring,
                             .doorbell_user = now};
    store->script = now;
    now->open_stores++;
    return &store->base;
}

static pr_status store_clone(pr_store *store, pr_store **ret_store, pr_error *err)
{
    (void)err;
    script *now = ((fake_store *)store)->script;
    now->clones++;
    *ret_store = new_store(now);
    return PR_OK;
}

static pr_status store_check(pr_store *store, pr_error *err)
{
    return ((fake_store *)store)->script->check_fails
               ? pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_RECONNECT, "fake", "still away")
               : PR_OK;
}

static void store_free(pr_store *store)
{
    ((fake_store *)store)->script->open_stores--;
    pr__free(store);
}

static const pr__store_ops fake_ops = {.name = "fake",
                                       .free = store_free,
                                       .clone = store_clone,
                                       .check = store_check,
                                       .unit_begin = unit_begin,
                                       .reader_exists = reader_exists};

typedef struct world {
    script script;
    pr_store *store;
    pr_transport *transport;
    char ids[16][37];
    pr_message messages[16];
    pr_submitted outcomes[16]; /* by ticket */
} world;

static void open_world(world *at)
{
    pr_error err = PR_ERROR_INIT;
    *at = (world){.script = {.exists = true}};
    at->store = new_store(&at->script);
    pr_database_options options = {.size = (uint32_t)sizeof(options), .window = 16};
    check_ok(pr_database_transport_new(at->store, &options, &at->transport, &err), &err, "new");
    check_ok(pr_transport_open(at->transport, 0, &err), &err, "open");
}

static void close_world(world *at)
{
    pr_transport_free(at->transport);
    pr_store_free(at->store);
    assert_int_equal(at->script.open_units, 0);
    assert_int_equal(at->script.open_stores, 0);
}

/* Send one message for each body, to in/billing or where the body says; collect all outcomes. */
static void send(world *at, const char *const *bodies, size_t count)
{
    pr_submission submissions[16];
    for (size_t i = 0; i < count; i++) {
        snprintf(at->ids[i], sizeof(at->ids[i]), "018e0000-0000-7000-8000-%012zx", i);
        bool nobody = strcmp(bodies[i], "nobody") == 0;
        at->messages[i] = (pr_message)
            PR_MESSAGE(.id = at->ids[i], .type = "urn:message:unit:a", .type_version = 1,
                       .destination = nobody ? "database://in/nobody" : "database://in/billing",
                       .body = bodies[i], .body_size_bytes = strlen(bodies[i]), .occurred_at_us = 1,
                       .deliver_at_us = 1);
        if (strcmp(bodies[i], "large") == 0)
            at->messages[i].body_size_bytes = 1001;
        submissions[i] = (pr_submission){i, &at->messages[i]};
    }
    pr_error err = PR_ERROR_INIT;
    size_t accepted = 0;
    check_ok(pr_transport_submit(at->transport, submissions, count, &accepted, &err), &err, "");
    assert_int_equal(accepted, count);
    assert_int_equal(at->script.transactions, 0); /* nothing happens before the poll */
    memset(at->outcomes, 0, sizeof(at->outcomes));
    pr_submitted out[16];
    size_t got = 0;
    check_ok(pr_transport_poll(at->transport, 0, out, 16, &got, &err), &err, "poll");
    assert_int_equal(got, count);
    for (size_t i = 0; i < got; i++) {
        assert_int_equal(at->outcomes[out[i].ticket].outcome, 0);
        at->outcomes[out[i].ticket] = out[i];
    }
}

static void check_outcome(const world *at, size_t i, pr_submit_outcome wanted, const char *text,
                          const char *label)
{
    const pr_submitted *out = &at->outcomes[i];
    if (out->outcome != wanted || !strstr(out->reason, text))
        fail_msg("case '%s', message %zu: outcome %d '%s', wanted %d '%s'", label, i,
                 (int)out->outcome, out->reason, (int)wanted, text);
}

static pr_transport_state state_of(const world *at)
{
    pr_transport_state state;
    pr_transport_state_get(at->transport, &state);
    return state;
}

static void test_a_failing_database_charges_nobody(void **state)
{
    (void)state;
    static const struct {
        const char *label;
        script script;
        const char *text;
        pr_transport_state_kind kind;
    } cases[] = {
        {"busy",
         {.begin = PR_E_BUSY, .begin_retry = PR_RETRY_SAME},
         "no transaction",
         PR_TRANSPORT_BLOCKED},
        {"away",
         {.begin = PR_E_BACKEND, .begin_retry = PR_RETRY_RECONNECT},
         "no transaction",
         PR_TRANSPORT_DOWN},
        {"schema", {.begin = PR_E_SCHEMA}, "no transaction", PR_TRANSPORT_DOWN},
        {"unknown", {.commit = PR_OUTCOME_UNKNOWN}, "reply was lost", PR_TRANSPORT_DOWN},
        {"full", {.commit = PR_OUTCOME_NOT_COMMITTED}, "disk is full", PR_TRANSPORT_BLOCKED},
        {"readers", {.exists_status = PR_E_BACKEND}, "gone", PR_TRANSPORT_DOWN},
    };
    static const char *const bodies[] = {"a", "b", "c"};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        world at;
        open_world(&at);
        int stores = at.script.open_stores;
        at.script = cases[i].script;
        at.script.exists = true;
        at.script.open_stores = stores;
        send(&at, bodies, 3);
        for (size_t k = 0; k < 3; k++) {
            check_outcome(&at, k, PR_SUBMIT_LOST, cases[i].text, cases[i].label);
            CHECK_CASE(!at.outcomes[k].suspect, cases[i].label);
        }
        CHECK_CASE(at.script.kept_count == 0 || cases[i].script.commit, cases[i].label);
        CHECK_CASE(at.script.doorbells == 0, cases[i].label);
        pr_transport_state now = state_of(&at);
        CHECK_CASE(now.kind == cases[i].kind, cases[i].label);
        CHECK_CASE(strstr(now.cause, cases[i].text) != NULL, cases[i].label);
        close_world(&at);
    }
}

static void test_down_is_down_until_it_is_opened(void **state)
{
    (void)state;
    static const char *const bodies[] = {"a"};
    world at;
    open_world(&at);
    at.script.begin = PR_E_BACKEND;
    at.script.begin_retry = PR_RETRY_RECONNECT;
    send(&at, bodies, 1);
    pr_submission submission = {0, &at.messages[0]};
    pr_error err = PR_ERROR_INIT;
    size_t accepted = 9;
    check_error(pr_transport_submit(at.transport, &submission, 1, &accepted, &err), &err,
                PR_E_BACKEND, "no transaction", "submit while down");
    assert_int_equal(err.retry, PR_RETRY_RECONNECT);
    assert_int_equal(accepted, 0);
    at.script.check_fails = true;
    pr_error_clear(&err);
    check_error(pr_transport_open(at.transport, 0, &err), &err, PR_E_BACKEND, "still away", "open");
    assert_int_equal(state_of(&at).kind, PR_TRANSPORT_DOWN);
    int clones = at.script.clones;
    at.script.check_fails = false;
    at.script.begin = PR_OK;
    pr_error_clear(&err);
    check_ok(pr_transport_open(at.transport, 0, &err), &err, "open again");
    assert_int_equal(at.script.clones, clones + 1); /* the spent handle gave way */
    assert_int_equal(state_of(&at).kind, PR_TRANSPORT_UP);
    at.script.transactions = 0;
    send(&at, bodies, 1);
    check_outcome(&at, 0, PR_SUBMIT_CONFIRMED, "", "after it came back");
    close_world(&at);
}

static void test_a_refused_message_fails_alone(void **state)
{
    (void)state;
    static const char *const bodies[] = {"a", "b", "bad", "c", "nobody", "d", "large", "bad", "e"};
    static const struct {
        const char *label;
        pr_status bad;
        pr_submit_outcome wanted;
        bool suspect;
    } cases[] = {
        {"content", PR_E_CONTENT, PR_SUBMIT_REFUSED, false},
        {"conflict", PR_E_CONFLICT, PR_SUBMIT_REFUSED, false},
        {"limit", PR_E_LIMIT, PR_SUBMIT_TOO_LARGE, false},
        {"a constraint of the host's own", PR_E_BACKEND, PR_SUBMIT_LOST, true},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const char *label = cases[i].label;
        world at;
        open_world(&at);
        at.script.bad = cases[i].bad;
        send(&at, bodies, COUNT_OF(bodies));
        static const size_t fine[] = {0, 1, 3, 5, 8};
        for (size_t k = 0; k < COUNT_OF(fine); k++)
            check_outcome(&at, fine[k], PR_SUBMIT_CONFIRMED, "", label);
        check_outcome(&at, 2, cases[i].wanted, "is bad", label);
        check_outcome(&at, 7, cases[i].wanted, "is bad", label);
        CHECK_CASE(at.outcomes[2].suspect == cases[i].suspect, label);
        check_outcome(&at, 4, PR_SUBMIT_RETURNED, "nobody", label);
        check_outcome(&at, 6, PR_SUBMIT_TOO_LARGE, "1001 bytes", label);
        CHECK_CASE(at.script.kept_count == 5, label);
        for (size_t k = 0; k < COUNT_OF(fine); k++) /* each once, in the order of the submit */
            CHECK_CASE(strcmp(at.script.kept[k], at.ids[fine[k]]) == 0, label);
        CHECK_CASE(state_of(&at).kind == PR_TRANSPORT_UP, label);
        close_world(&at);
    }
}

static void test_one_append_is_one_transaction(void **state)
{
    (void)state;
    static const char *const bodies[] = {"a", "b", "nobody", "c"};
    world at;
    open_world(&at);
    send(&at, bodies, COUNT_OF(bodies));
    assert_int_equal(at.script.transactions, 1);
    assert_int_equal(at.script.commits, 1);
    assert_int_equal(at.script.rollbacks, 0);
    assert_int_equal(at.script.doorbells, 1);
    assert_int_equal(at.script.exists_calls, 2); /* one for each destination */
    assert_int_equal(at.script.kept_count, 3);
    assert_string_equal(at.script.destinations[0], "local://in/billing");
    assert_false(at.script.saw_caller_id);
    assert_false(at.script.saw_deliver_at);
    assert_int_equal(at.messages[0].deliver_at_us, 1); /* the caller's is untouched */
    assert_string_equal(at.messages[0].destination, "database://in/billing");
    /* nothing to append: no transaction at all */
    pr_submitted out;
    size_t got = 9;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_transport_poll(at.transport, 0, &out, 1, &got, &err), &err, "poll");
    assert_int_equal(got, 0);
    static const char *const none[] = {"nobody"};
    at.script.transactions = 0;
    send(&at, none, 1);
    assert_int_equal(at.script.transactions, 0);
    close_world(&at);
}

static void test_options_are_checked(void **state)
{
    (void)state;
    script now = {0};
    pr_store *store = new_store(&now);
    const uint32_t size = (uint32_t)sizeof(pr_database_options);
    const struct {
        const char *label;
        pr_database_options options;
        const char *text;
    } cases[] = {
        {"no size", {.size = 0}, "size"},
        {"name", {.size = size, .name = "9"}, "a-z"},
        {"reserved", {.size = size, .name = "local"}, "reserved"},
        {"window", {.size = size, .window = 70000}, "70000"},
    };
    pr_error err = PR_ERROR_INIT;
    pr_transport *transport = NULL;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error_clear(&err);
        check_error(pr_database_transport_new(store, &cases[i].options, &transport, &err), &err,
                    PR_E_INVALID, cases[i].text, cases[i].label);
    }
    pr_error_clear(&err);
    check_error(pr_database_transport_new(NULL, NULL, &transport, &err), &err, PR_E_INVALID, "NULL",
                "no store");
    now.check_fails = true;
    pr_error_clear(&err);
    check_error(pr_database_transport_new(store, NULL, &transport, &err), &err, PR_E_BACKEND,
                "still away", "a store that fails its check");
    assert_null(transport);
    now.check_fails = false;
    pr_error_clear(&err);
    check_ok(pr_database_transport_new(store, NULL, &transport, &err), &err, "defaults");
    assert_string_equal(transport->name, "database");
    assert_int_equal(transport->window, 256);
    pr_transport_state unopened;
    pr_transport_state_get(transport, &unopened);
    assert_int_equal(unopened.kind, PR_TRANSPORT_DOWN);
    assert_non_null(strstr(unopened.cause, "not opened"));
    pr_transport_free(transport);
    pr_store_free(store);
    assert_int_equal(now.open_stores, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_are_checked),
        cmocka_unit_test(test_a_failing_database_charges_nobody),
        cmocka_unit_test(test_down_is_down_until_it_is_opened),
        cmocka_unit_test(test_a_refused_message_fails_alone),
        cmocka_unit_test(test_one_append_is_one_transaction),
    };
    return RUN_TESTS(tests);
}
