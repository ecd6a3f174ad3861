/*
 * Other processes: one that is killed while it holds a mark, one that is frozen past its lease,
 * three that handle copies of one message, and one that asks and dies.
 */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <postroom/headers.h>

#include "base/time.h"
#include "base/uuid.h"
#include "bus/other.h"

#define TWINS  3 /* processes that handle copies of one message */
#define OTHERS 30
#define ID_B   "0198c5f2-7d3e-7a10-8b2c-00000000000b"
#define ID_END "0198c5f2-7d3e-7a10-8b2c-0000000000ee"

/* It had the mark and had not committed: nobody takes that for done, and when it is dead the
   message is processed. */
static void a_busy_delivery_whose_holder_is_killed_is_processed(void **state)
{
    world *w = *state;
    other_world(w);
    w->endpoint = pr_endpoint_free(w->endpoint); /* the other one is to get it */
    pr_error err = PR_ERROR_INIT;
    int64_t wait_ms = 0;
    other holder = other_start(w, "hang", "1");
    other_send(w, ID_A);
    assert_int_equal(other_hear(&holder), 'i');
    /* a copy of it is delivered as if by a broker that is not this database */
    pr_transport *memory = NULL;
    check_ok(pr_memory_transport_new(w->broker, NULL, &memory, &err), &err, "memory");
    pr_transport *database = w->receiver;
    w->receiver = memory;
    w->opt.busy_wait_ms = 100;
    world_start(w);
    pr_transport *out = w->sender;
    check_ok(pr_memory_transport_new(w->broker, NULL, &w->sender, &err), &err, "sender");
    world_send(w, ID_A, NULL, "{}");
    int64_t until_us = pr__monotonic_us() + PATIENCE_US;
    while (world_snapshot(w).requeued == 0 && pr__monotonic_us() < until_us)
        (void)!pr_endpoint_step(w->endpoint, &wait_ms, NULL);
    assert_true(world_snapshot(w).busy > 0 && world_snapshot(w).requeued > 0);
    assert_int_equal(world_snapshot(w).handled + world_snapshot(w).duplicate, 0);
    int status = other_end(&holder, SIGKILL);
    assert_true(WIFSIGNALED(status));
    world_until(w, handled, 1);
    assert_int_equal(world_number(w, EFFECTS), 1);
    assert_int_equal(world_number(w, MARKS), 1);
    assert_int_equal(world_snapshot(w).failed, 0);
    pr_transport_free(database);
    pr_transport_free(out);
}

static void one_frozen_past_its_lease_can_not_complete(void **state)
{
    world *w = *state;
    w->opt.inbox = PR_INBOX_LEASED;
    other_world(w);
    w->endpoint = pr_endpoint_free(w->endpoint); /* the other one is to get it */
    other frozen = other_start(w, "leased", "1");
    other_send(w, ID_A);
    assert_int_equal(other_hear(&frozen), 'i');
    assert_int_equal(kill(frozen.pid, SIGSTOP), 0);
    world_start(w);
    world_until(w, handled, 1);
    assert_int_equal(world_number(w, EFFECTS), 1);
    other_tell(&frozen);
    assert_int_equal(kill(frozen.pid, SIGCONT), 0);
    assert_int_equal(other_hear(&frozen), 'l'); /* lost */
    int status = other_end(&frozen, SIGTERM);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(world_number(w, EFFECTS), 1);
    assert_int_equal(world_number(w, MARKS), 1);
    assert_int_equal(world_number(w, PARKED), 0);
}

/* All at once, each copy in a unit of its own: one commits, the others find its mark. */
static void copies_in_three_processes_have_one_effect(void **state)
{
    world *w = *state;
    other twins[TWINS];
    int handled = 0, good = 0;
    char words[TWINS];
    for (size_t i = 0; i < TWINS; i++)
        twins[i] = other_start(w, "twin", "8");
    for (size_t i = 0; i < TWINS; i++)
        words[i] = other_hear(&twins[i]);
    for (size_t i = 0; i < TWINS; i++)
        other_tell(&twins[i]);
    for (size_t i = 0; i < TWINS; i++) {
        handled += words[i] == 'r' && other_hear(&twins[i]) == '1' ? 1 : 0;
        int status = other_wait(&twins[i]);
        good += WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 1 : 0;
    }
    assert_int_equal(good, TWINS);
    assert_int_equal(handled, 1);
    assert_int_equal(world_number(w, EFFECTS), 1);
    assert_int_equal(world_number(w, MARKS), 1);
    assert_int_equal(world_number(w, PARKED), 0);
}

/* One queue, or log, that three processes with eight workers each share: copies of one message, and
   others between them. */
static void three_processes_share_what_comes(void **state)
{
    world *w = *state;
    other shares[TWINS];
    other_world(w);
    w->endpoint = pr_endpoint_free(w->endpoint);
    for (size_t i = 0; i < TWINS; i++)
        shares[i] = other_start(w, "share", "8");
    for (size_t i = 0; i < TWINS; i++)
        assert_int_equal(other_hear(&shares[i]), 'r');
    for (int i = 0; i < OTHERS; i++) {
        char id[PR_UUID_TEXT_SIZE];
        (void)snprintf(id, sizeof id, "0198c5f2-7d3e-7a10-8b2c-%012d", i);
        other_send(w, ID_A);
        other_send(w, id);
    }
    world_until_number(w, EFFECTS, OTHERS + 1);
    for (size_t i = 0; i < TWINS; i++) {
        int status = other_end(&shares[i], SIGTERM);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    other_send(w, ID_END); /* behind whatever copy is left */
    world_start(w);
    world_until(w, handled, 1);
    assert_int_equal(world_number(w, EFFECTS), OTHERS + 2);
    assert_int_equal(world_number(w, "SELECT count(DISTINCT id) FROM effects"), OTHERS + 2);
    assert_int_equal(world_number(w, MARKS), OTHERS + 2);
    assert_int_equal(world_number(w, PARKED), 0);
}

/* Its lease is renewed while it works, and by nobody when it is dead. */
static void a_long_handler_of_another_process_keeps_its_lease(void **state)
{
    world *w = *state;
    w->opt.inbox = PR_INBOX_LEASED;
    other_world(w);
    w->endpoint = pr_endpoint_free(w->endpoint); /* the other one is to get it */
    other slow = other_start(w, "slow-leased", "1");
    other_send(w, ID_A);
    assert_int_equal(other_hear(&slow), 'i');
    world_start(w);
    world_run(w);
    assert_int_equal(other_hear(&slow), 'd');
    world_stop(w);
    assert_int_equal(w->calls, 0);
    w->endpoint = pr_endpoint_free(w->endpoint);
    world_until_number(w, EFFECTS, 1); /* it has said so before it committed */
    other_send(w, ID_B);
    assert_int_equal(other_hear(&slow), 'i');
    int status = other_end(&slow, SIGKILL);
    assert_true(WIFSIGNALED(status));
    world_start(w);
    world_until(w, handled, 1);
    assert_int_equal(world_number(w, EFFECTS), 2);
    assert_int_equal(world_number(w, MARKS), 2);
    assert_int_equal(world_number(w, PARKED), 0);
}

typedef struct prices {
    atomic_int asked;
    atomic_bool answer;
    char reply_to[128]; /* of the first that asked */
} prices;

static void note_reply_to(prices *p, const pr_message *message)
{
    pr_headers *headers = NULL;
    const pr_header *to = NULL;
    if (pr_headers_parse(message->headers, &headers, NULL) == PR_OK)
        to = pr_headers_get(headers, PR_HEADER_NAME_REPLY_TO);
    (void)snprintf(p->reply_to, sizeof p->reply_to, "%s", to ? to->text : "?");
    pr_headers_free(headers);
}

static pr_handled tell_price(void *user, pr_scope *scope)
{
    prices *p = user;
    int64_t until_us = pr__monotonic_us() + PATIENCE_US;
    pr_message price = PR_MESSAGE(.type = TYPE_PRICE, .body = "{}", .body_size_bytes = 2);
    if (p->reply_to[0] == '\0')
        note_reply_to(p, pr_scope_message(scope));
    atomic_fetch_add(&p->asked, 1);
    while (!atomic_load(&p->answer) && pr__monotonic_us() < until_us)
        pr__sleep_us(1000);
    return pr_scope_reply(scope, &price, NULL, NULL) == PR_OK ? PR_HANDLED_OK : PR_HANDLED_RETRY;
}

static pr_bus *prices_bus(world *w, prices *p, pr_transport *database)
{
    pr_error err = PR_ERROR_INIT;
    pr_bus *bus = NULL;
    const pr_relay_options relay = PR_RELAY_OPTIONS(.backoff_initial_ms = 20, .retry_max = 2,
                                                    .jitter_percent = PR_JITTER_NONE);
    const pr_bus_options opt = PR_BUS_OPTIONS(.store = w->store, .relay = &relay);
    pr_endpoint_options endpoint = PR_ENDPOINT_OPTIONS(.id = "prices", .handler = tell_price,
                                                       .user = p, .inbox = PR_INBOX_LEASED);
    check_ok(pr_bus_new(&opt, &bus, &err), &err, "bus");
    check_ok(pr_bus_add_transport(bus, database, &err), &err, "database");
    check_ok(pr_bus_add_endpoint(bus, &endpoint, NULL, &err), &err, "prices");
    check_ok(pr_bus_start(bus, &err), &err, "start");
    return bus;
}

/* Nobody gets what is sent there any more. */
static void wait_expired(pr_bus *bus, const char *address)
{
    pr_error err = PR_ERROR_INIT;
    pr_message message = PR_MESSAGE(.type = TYPE_PRICE, .body = "{}", .body_size_bytes = 2);
    int64_t until_us = pr__monotonic_us() + PATIENCE_US;
    while (pr_bus_send(bus, address, &message, NULL, NULL) == PR_OK &&
           pr__monotonic_us() < until_us)
        pr__sleep_us(10000);
    check_error(pr_bus_send(bus, address, &message, NULL, &err), &err, PR_E_NOT_FOUND, "reply/",
                "expired");
}

/* Subscriptions for answers that the database knows; a broker knows of its own. */
static void check_boxes(world *w, int64_t wanted)
{
    if (!bus_carrier_in_use)
        assert_int_equal(world_number(w, "SELECT count(*) FROM {p}_subscription WHERE temporary"),
                         wanted);
}

/* Its subscription expires, or goes with its connection; the answer is returned to the outbox, is
   tried as often as any other, and rests there. What is left of the subscription goes when the next
   one is made. */
static void the_answer_to_a_dead_requester_is_dead(void **state)
{
    static const char dead[] = "SELECT count(*) FROM {p}_outbox_parked WHERE state = 'dead'";
    static const char to[] = "SELECT destination FROM {p}_outbox_parked";
    world *w = *state;
    pr_error err = PR_ERROR_INIT;
    prices p = {.asked = 0};
    pr_reply *reply = NULL;
    other_world(w);
    w->endpoint = pr_endpoint_free(w->endpoint);
    pr_transport *transport = other_transport(w);
    pr_bus *bus = prices_bus(w, &p, transport);
    other asker = other_start(w, "requester", "1");
    int64_t until_us = pr__monotonic_us() + PATIENCE_US;
    while (atomic_load(&p.asked) == 0 && pr__monotonic_us() < until_us)
        pr__sleep_us(1000);
    assert_int_equal(atomic_load(&p.asked), 1);
    check_boxes(w, 1);
    assert_true(WIFSIGNALED(other_end(&asker, SIGKILL)));
    wait_expired(bus, p.reply_to);
    atomic_store(&p.answer, true);
    until_us = pr__monotonic_us() + PATIENCE_US;
    while (world_number(w, dead) == 0 && pr__monotonic_us() < until_us)
        pr__sleep_us(20000);
    assert_int_equal(world_number(w, dead), 1);
    assert_string_equal(world_text(w, to), p.reply_to);
    assert_int_equal(atomic_load(&p.asked), 1);
    pr_message request = PR_MESSAGE(.type = TYPE_ASK, .body = "{}", .body_size_bytes = 2);
    check_ok(pr_bus_request(bus, "prices", &request, NULL, &reply, &err), &err, "another");
    check_boxes(w, 1); /* its own: the dead one's is gone */
    assert_int_equal(world_number(w, "SELECT count(*) FROM {p}_outbox_parked"), 1);
    pr_reply_free(reply);
    pr_bus_free(bus);
    check_boxes(w, 0);
    pr_transport_free(transport);
}

size_t process_suite(const struct CMUnitTest **ret_tests)
{
    static const struct CMUnitTest tests[] = {
        CASE(a_busy_delivery_whose_holder_is_killed_is_processed),
        CASE(one_frozen_past_its_lease_can_not_complete),
        CASE(three_processes_share_what_comes),
        CASE(a_long_handler_of_another_process_keeps_its_lease),
        CASE(the_answer_to_a_dead_requester_is_dead),
        CASE(copies_in_three_processes_have_one_effect),
    };
    *ret_tests = tests;
    return bus_carrier_in_use ? COUNT_OF(tests) - 1 : COUNT_OF(tests); /* each has its own broker */
}
