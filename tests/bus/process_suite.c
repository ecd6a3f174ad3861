/*
 * Other processes: one that is killed while it holds a mark, one that is frozen past its lease,
 * three that handle copies of one message. They are this program again, told by its arguments what
 * to do; they read the log of the store by the database transport, but for those three: each has
 * a broker of its own, so that the copies are really in hand at once.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/time.h"
#include "bus/world.h"

#define ID_A       "0198c5f2-7d3e-7a10-8b2c-00000000000a"
#define WAIT_US    30000000
#define TYPE_ASK   "urn:message:shop:price-asked"
#define TYPE_PRICE "urn:message:shop:price-told"
#define TWINS      3 /* processes that handle copies of one message */
#define COPIES     16
#define EXPIRY_MS  400
#define BATCH      20

extern char **environ;

/* ---- in the other process ---- */

static pr_endpoint *own_endpoint;

static void on_term(int number)
{
    (void)number;
    pr_endpoint_stop(own_endpoint);
}

static void say(const char *word)
{
    ssize_t ignored = write(STDOUT_FILENO, word, strlen(word));
    (void)ignored;
}

typedef struct child {
    const bus_provider *provider;
    const char *mode;
} child;

static pr_handled child_handle(void *user, pr_scope *scope)
{
    const child *c = user;
    if (strcmp(c->mode, "leased") == 0) {
        say("i");
        usleep(300000); /* it is frozen meanwhile */
    }
    pr_unit *unit = pr_scope_unit(scope);
    bool good = unit && c->provider->effect(unit, pr_scope_message(scope)->id);
    if (strcmp(c->mode, "hang") == 0) {
        say("i");
        for (;;)
            pause();
    }
    if (strcmp(c->mode, "leased") == 0)
        say(good ? "d" : "l");
    if (strncmp(c->mode, "stop", 4) == 0) {
        int64_t until_us = pr__monotonic_us() + WAIT_US;
        say("i");
        while (!pr_scope_cancelled(scope) && pr__monotonic_us() < until_us)
            pr__sleep_us(1000);
        return PR_HANDLED_RETRY;
    }
    return good ? PR_HANDLED_OK : PR_HANDLED_RETRY;
}

/* Handle copies of one message beside other processes, once the test closes our input. */
static pr_handled twin_handle(void *user, pr_scope *scope)
{
    const child *c = user;
    bool good = c->provider->effect(pr_scope_unit(scope), pr_scope_message(scope)->id);
    usleep(20000); /* the others meet the mark before it is committed */
    return good ? PR_HANDLED_OK : PR_HANDLED_RETRY;
}

static void *twin_run(void *user)
{
    (void)user;
    return pr_endpoint_run(own_endpoint, NULL) == PR_OK ? own_endpoint : NULL;
}

static bool twin_send(pr_transport *sender)
{
    pr_message message =
        PR_MESSAGE(.id = ID_A, .type = TYPE_ORDER, .type_version = 1,
                   .content_type = "application/json", .destination = "memory://topic/" TYPE_ORDER,
                   .body = "{}", .body_size_bytes = 2, .occurred_at_us = 1767225600000000);
    pr_submission submission = {.ticket = 1, .message = &message};
    pr_submitted outcome;
    size_t count = 0;
    return pr_transport_submit(sender, &submission, 1, &count, NULL) == PR_OK && count == 1 &&
           pr_transport_poll(sender, 1000, &outcome, 1, &count, NULL) == PR_OK && count == 1 &&
           outcome.outcome == PR_SUBMIT_CONFIRMED;
}

/* Until each copy is handled or known as handled; says how it ended. */
static bool twin_settle(void)
{
    pr_endpoint_snapshot snapshot = {.size = (uint32_t)sizeof snapshot};
    int64_t until_us = pr__monotonic_us() + WAIT_US;
    while (pr_endpoint_snapshot_get(own_endpoint, &snapshot, NULL) == PR_OK &&
           snapshot.handled + snapshot.duplicate < COPIES && pr__monotonic_us() < until_us)
        pr__sleep_us(1000);
    say(snapshot.handled == 0 ? "0" : snapshot.handled == 1 ? "1" : "m");
    return snapshot.handled + snapshot.duplicate == COPIES && snapshot.failed + snapshot.dead == 0;
}

static int twin(child *c, const char *address, const char *threads)
{
    static const char *const types[] = {TYPE_ORDER};
    pr_store *store = c->provider->open(address);
    pr_memory_broker *broker = NULL;
    pr_transport *sender = NULL, *receiver = NULL;
    pthread_t thread;
    void *ran = NULL;
    char word = 0;
    int64_t wait_ms = 0;
    pr_endpoint_options opt =
        PR_ENDPOINT_OPTIONS(.id = CONSUMER, .types = types, .type_count = 1, .handler = twin_handle,
                            .user = c, .poll_ms = 5, .busy_wait_ms = 300,
                            .concurrency = (uint32_t)strtol(threads, NULL, 10));
    bool good = pr_memory_broker_new(&broker, NULL) == PR_OK &&
                pr_memory_transport_new(broker, NULL, &sender, NULL) == PR_OK &&
                pr_memory_transport_new(broker, NULL, &receiver, NULL) == PR_OK &&
                pr_transport_open(sender, 1000, NULL) == PR_OK &&
                pr_endpoint_new(store, receiver, &opt, &own_endpoint, NULL) == PR_OK &&
                pr_endpoint_step(own_endpoint, &wait_ms, NULL) == PR_OK;
    for (int i = 0; good && i < COPIES; i++)
        good = twin_send(sender);
    say(good ? "r" : "f");
    while (good && read(STDIN_FILENO, &word, 1) < 0 && errno == EINTR)
        ;
    good = good && pthread_create(&thread, NULL, twin_run, NULL) == 0;
    if (good) {
        bool settled = twin_settle();
        pr_endpoint_stop(own_endpoint);
        good = pthread_join(thread, &ran) == 0 && ran && settled;
    }
    pr_endpoint_free(own_endpoint);
    pr_transport_free(receiver);
    pr_transport_free(sender);
    pr_memory_broker_free(broker);
    pr_store_free(store);
    return good ? 0 : 1;
}

/* Ask, and be killed before the answer comes. */
static int requester(const child *c, const char *address)
{
    pr_store *store = c->provider->open(address);
    pr_transport *database = NULL;
    pr_bus *bus = NULL;
    pr_reply *reply = NULL;
    const pr_bus_options opt =
        PR_BUS_OPTIONS(.store = store, .relay_off = true, .reply_expiry_ms = EXPIRY_MS);
    pr_message request = PR_MESSAGE(.type = TYPE_ASK, .body = "{}", .body_size_bytes = 2);
    if (pr_database_transport_new(store, NULL, &database, NULL) != PR_OK ||
        pr_bus_new(&opt, &bus, NULL) != PR_OK ||
        pr_bus_add_transport(bus, database, NULL) != PR_OK || pr_bus_start(bus, NULL) != PR_OK)
        return 1;
    (void)!pr_bus_request(bus, "prices", &request, NULL, &reply, NULL);
    return 1; /* it was to be killed */
}

int bus_child_run(const bus_provider *provider, char **argv)
{
    child c = {.provider = provider, .mode = argv[2]};
    if (strcmp(c.mode, "twin") == 0)
        return twin(&c, argv[3], argv[4]);
    if (strcmp(c.mode, "requester") == 0)
        return requester(&c, argv[3]);
    static const char *const types[] = {TYPE_ORDER};
    pr_store *store = provider->open(argv[3]);
    pr_transport *transport = NULL;
    bool leased = strstr(c.mode, "leased") != NULL;
#ifdef PR_FAULT_POINTS
    if (argv[5][0] != '\0')
        pr__fault_reset(argv[5]);
#endif
    pr_endpoint_options opt =
        PR_ENDPOINT_OPTIONS(.id = CONSUMER, .types = types, .type_count = 1,
                            .handler = child_handle, .user = &c,
                            .inbox = leased ? PR_INBOX_LEASED : PR_INBOX_TRANSACTIONAL,
                            .lease_ms = 600, .poll_ms = 5, .stop_grace_ms = 100,
                            .concurrency = (uint32_t)strtol(argv[4], NULL, 10), .busy_wait_ms = 300,
                            .batch_max = strcmp(c.mode, "batch") == 0 ? BATCH : 0);
    if (pr_database_transport_new(store, NULL, &transport, NULL) != PR_OK ||
        pr_endpoint_new(store, transport, &opt, &own_endpoint, NULL) != PR_OK)
        return 1;
    (void)signal(SIGTERM, on_term);
    pr_status status = pr_endpoint_run(own_endpoint, NULL);
    pr_endpoint_free(own_endpoint);
    pr_transport_free(transport);
    pr_store_free(store);
    return status == PR_OK ? 0 : 1;
}

/* ---- in the test ---- */

typedef struct other {
    pid_t pid;
    int said;
    int told; /* its input: closed to let it go on */
} other;

static other start_with(world *w, const char *mode, const char *threads, const char *fault)
{
    other o = {.pid = 0};
    int ends[2], inputs[2];
    posix_spawn_file_actions_t actions;
    char self[] = "/proc/self/exe", flag[] = "--child";
    char *argv[] = {self,
                    flag,
                    (char *)(uintptr_t)mode,
                    w->address,
                    (char *)(uintptr_t)threads,
                    (char *)(uintptr_t)fault,
                    NULL};
    /* closed in children that come later: they must not keep this one waiting */
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(pipe2(inputs, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, inputs[0], STDIN_FILENO);
    assert_int_equal(posix_spawn(&o.pid, self, &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    close(inputs[0]);
    o.said = ends[0];
    o.told = inputs[1];
    return o;
}

static other start(world *w, const char *mode, const char *threads)
{
    return start_with(w, mode, threads, "");
}

static char hear(const other *o)
{
    char word = 0;
    while (read(o->said, &word, 1) < 0 && errno == EINTR)
        ;
    return word;
}

static int wait_for(const other *o)
{
    int status = 0;
    assert_int_equal(waitpid(o->pid, &status, 0), o->pid);
    close(o->said);
    return status;
}

static int end(other *o, int number)
{
    assert_int_equal(kill(o->pid, number), 0);
    close(o->told);
    return wait_for(o);
}

/* The test's own endpoint reads the same log. */
static void use_database(world *w)
{
    pr_error err = PR_ERROR_INIT;
    w->receiver = pr_transport_free(w->receiver);
    w->sender = pr_transport_free(w->sender);
    check_ok(pr_database_transport_new(w->store, NULL, &w->receiver, &err), &err, "receiver");
    check_ok(pr_database_transport_new(w->store, NULL, &w->sender, &err), &err, "sender");
    check_ok(pr_transport_open(w->sender, 1000, &err), &err, "open");
    w->opt.lease_ms = 600;
    world_start(w);
}

static void send_id(world *w, const char *id)
{
    pr_message message = PR_MESSAGE(.id = id, .type = TYPE_ORDER, .type_version = 1,
                                    .content_type = "application/json",
                                    .destination = "database://topic/" TYPE_ORDER, .body = "{}",
                                    .body_size_bytes = 2, .occurred_at_us = 1767225600000000);
    world_send_message(w, &message);
}

static void send_a(world *w)
{
    send_id(w, ID_A);
}

/* It had the mark and had not committed: nobody takes that for done, and when it is dead the
   message is processed. */
static void a_busy_delivery_whose_holder_is_killed_is_processed(void **state)
{
    world *w = *state;
    use_database(w);
    pr_error err = PR_ERROR_INIT;
    int64_t wait_ms = 0;
    other holder = start(w, "hang", "1");
    send_a(w);
    assert_int_equal(hear(&holder), 'i');
    /* a copy of it is delivered as if by a broker that is not this database */
    pr_transport *memory = NULL;
    check_ok(pr_memory_transport_new(w->broker, NULL, &memory, &err), &err, "memory");
    w->endpoint = pr_endpoint_free(w->endpoint);
    pr_transport *database = w->receiver;
    w->receiver = memory;
    w->opt.busy_wait_ms = 100;
    world_start(w);
    pr_transport *out = w->sender;
    check_ok(pr_memory_transport_new(w->broker, NULL, &w->sender, &err), &err, "sender");
    world_send(w, ID_A, NULL, "{}");
    int64_t until_us = pr__monotonic_us() + WAIT_US;
    while (world_snapshot(w).requeued == 0 && pr__monotonic_us() < until_us)
        (void)!pr_endpoint_step(w->endpoint, &wait_ms, NULL);
    assert_true(world_snapshot(w).busy > 0 && world_snapshot(w).requeued > 0);
    assert_int_equal(world_snapshot(w).handled + world_snapshot(w).duplicate, 0);
    int status = end(&holder, SIGKILL);
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
    use_database(w);
    w->endpoint = pr_endpoint_free(w->endpoint); /* the other one is to get it */
    other frozen = start(w, "leased", "1");
    send_a(w);
    assert_int_equal(hear(&frozen), 'i');
    assert_int_equal(kill(frozen.pid, SIGSTOP), 0);
    world_start(w);
    world_until(w, handled, 1);
    assert_int_equal(world_number(w, EFFECTS), 1);
    assert_int_equal(kill(frozen.pid, SIGCONT), 0);
    assert_int_equal(hear(&frozen), 'l'); /* lost */
    int status = end(&frozen, SIGTERM);
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
        twins[i] = start(w, "twin", "8");
    for (size_t i = 0; i < TWINS; i++)
        words[i] = hear(&twins[i]);
    for (size_t i = 0; i < TWINS; i++)
        close(twins[i].told);
    for (size_t i = 0; i < TWINS; i++) {
        handled += words[i] == 'r' && hear(&twins[i]) == '1' ? 1 : 0;
        int status = wait_for(&twins[i]);
        good += WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 1 : 0;
    }
    assert_int_equal(good, TWINS);
    assert_int_equal(handled, 1);
    assert_int_equal(world_number(w, EFFECTS), 1);
    assert_int_equal(world_number(w, MARKS), 1);
    assert_int_equal(world_number(w, PARKED), 0);
}

typedef struct prices {
    atomic_int asked;
    atomic_bool answer;
} prices;

static pr_handled tell_price(void *user, pr_scope *scope)
{
    prices *p = user;
    int64_t until_us = pr__monotonic_us() + WAIT_US;
    pr_message price = PR_MESSAGE(.type = TYPE_PRICE, .body = "{}", .body_size_bytes = 2);
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
    int64_t until_us = pr__monotonic_us() + WAIT_US;
    while (pr_bus_send(bus, address, &message, NULL, NULL) == PR_OK &&
           pr__monotonic_us() < until_us)
        pr__sleep_us(10000);
    check_error(pr_bus_send(bus, address, &message, NULL, &err), &err, PR_E_NOT_FOUND, "reply/",
                "expired");
}

/* Its subscription expires; the answer is returned to the outbox, is tried as often as any other,
   and rests there. What is left of the subscription goes when the next one is made. */
static void the_answer_to_a_dead_requester_is_dead(void **state)
{
    static const char dead[] = "SELECT count(*) FROM {p}_outbox_parked WHERE state = 'dead'";
    static const char boxes[] = "SELECT count(*) FROM {p}_subscription WHERE temporary";
    world *w = *state;
    pr_error err = PR_ERROR_INIT;
    prices p = {.asked = 0};
    pr_transport *database = NULL;
    pr_reply *reply = NULL;
    char address[128];
    check_ok(pr_database_transport_new(w->store, NULL, &database, &err), &err, "database");
    pr_bus *bus = prices_bus(w, &p, database);
    other asker = start(w, "requester", "1");
    int64_t until_us = pr__monotonic_us() + WAIT_US;
    while (atomic_load(&p.asked) == 0 && pr__monotonic_us() < until_us)
        pr__sleep_us(1000);
    assert_int_equal(world_number(w, boxes), 1);
    (void)snprintf(address, sizeof address, "database://%s",
                   world_text(w, "SELECT name FROM {p}_subscription WHERE temporary"));
    assert_true(WIFSIGNALED(end(&asker, SIGKILL)));
    wait_expired(bus, address);
    atomic_store(&p.answer, true);
    until_us = pr__monotonic_us() + WAIT_US;
    while (world_number(w, dead) == 0 && pr__monotonic_us() < until_us)
        pr__sleep_us(20000);
    assert_int_equal(world_number(w, dead), 1);
    assert_string_equal(world_text(w, "SELECT destination FROM {p}_outbox_parked"), address);
    assert_int_equal(atomic_load(&p.asked), 1);
    pr_message request = PR_MESSAGE(.type = TYPE_ASK, .body = "{}", .body_size_bytes = 2);
    check_ok(pr_bus_request(bus, "prices", &request, NULL, &reply, &err), &err, "another");
    assert_int_equal(world_number(w, boxes), 1); /* its own: the dead one's is gone */
    assert_int_equal(world_number(w, "SELECT count(*) FROM {p}_outbox_parked"), 1);
    pr_reply_free(reply);
    pr_bus_free(bus);
    assert_int_equal(world_number(w, boxes), 0);
    pr_transport_free(database);
}

#ifdef PR_FAULT_POINTS
typedef struct kill_case {
    const char *label, *mode, *threads, *fault;
    int messages;
    int effects; /* when it is dead; ANY of several messages */
} kill_case;

#define ANY (-1)

/* It must have been killed by its fault point; one that was not is killed here, and fails. */
static void check_killed(other *o, const char *label)
{
    int64_t until_us = pr__monotonic_us() + WAIT_US;
    int status = 0;
    pid_t ended = 0;
    while ((ended = waitpid(o->pid, &status, WNOHANG)) == 0 && pr__monotonic_us() < until_us)
        pr__sleep_us(1000);
    if (ended == 0)
        (void)end(o, SIGKILL);
    else
        close(o->said);
    if (ended != o->pid || !WIFSIGNALED(status))
        fail_msg("%s: it was not killed at its fault point", label);
}

static void run_kill_case(world *w, const kill_case *c, int number, int before)
{
    w->endpoint = pr_endpoint_free(w->endpoint); /* the other one is to get them */
    for (int i = 0; i < c->messages; i++) {
        char id[40];
        (void)snprintf(id, sizeof id, "0198c5f2-7d3e-7a10-8b2c-%04x%08x", number, i);
        send_id(w, id);
    }
    other killed = start_with(w, c->mode, c->threads, c->fault);
    check_killed(&killed, c->label);
    int64_t effects = world_number(w, EFFECTS) - before;
    if (c->effects != ANY && effects != c->effects)
        fail_msg("%s: %lld effects when it is dead, wanted %d", c->label, (long long)effects,
                 c->effects);
    w->opt.inbox = strstr(c->mode, "leased") ? PR_INBOX_LEASED : PR_INBOX_TRANSACTIONAL;
    world_start(w);
    if (c->messages == 1 && c->effects == 1)
        world_until(w, duplicate, 1);
    world_until_number(w, EFFECTS, before + c->messages);
    world_until_number(w, MARKS, before + c->messages);
    world_until_number(w, PARKED, 0);
    if (world_number(w, "SELECT count(DISTINCT id) FROM effects") != before + c->messages)
        fail_msg("%s: an effect is there twice", c->label);
    if (world_snapshot(w).failed + world_snapshot(w).dead != 0)
        fail_msg("%s: it was charged", c->label);
}
#endif

/* Before the commit: no effect, then one. After it: that one. Whoever handled beside it loses
   nothing. */
static void one_killed_around_its_commit_has_one_effect(void **state)
{
#ifdef PR_FAULT_POINTS
    static const kill_case cases[] = {
        {"before", "work", "1", "endpoint.before_commit:1:kill", 1, 0},
        {"before, workers", "work", "4", "endpoint.before_commit:1:kill", 1, 0},
        {"after, workers", "work", "4", "endpoint.after_commit:1:kill", 1, 1},
        {"ack, workers", "work", "4", "endpoint.before_ack:1:kill", 1, 1},
        {"many, before", "work", "4", "endpoint.before_commit:3:kill", 8, ANY},
        {"many, ack", "work", "4", "endpoint.before_ack:3:kill", 8, ANY},
        {"lease", "work-leased", "4", "endpoint.after_lease_commit:1:kill", 1, 0},
        {"leased, before", "work-leased", "1", "endpoint.before_commit:1:kill", 1, 0},
        {"leased, before, workers", "work-leased", "4", "endpoint.before_commit:1:kill", 1, 0},
        {"leased, after", "work-leased", "1", "endpoint.after_commit:1:kill", 1, 1},
        {"leased, ack, workers", "work-leased", "4", "endpoint.before_ack:1:kill", 1, 1},
        {"leased, many", "work-leased", "4", "endpoint.before_commit:3:kill", 8, ANY},
    };
    world *w = *state;
    int before = 0;
    use_database(w);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        run_kill_case(w, &cases[i], (int)i, before);
        before += cases[i].messages;
    }
#else
    (void)state;
    skip();
#endif
}

static pr_handled act_note_attempts(world *w, pr_scope *scope)
{
    atomic_store(&w->flag, (int)pr_scope_attempts(scope));
    return PR_HANDLED_OK;
}

/* It is told to give up: nothing of its work stays, and no attempt is counted. */
static void one_stopped_in_its_handler_charges_nothing(void **state)
{
    static const struct {
        const char *label, *mode, *threads;
    } cases[] = {{"alone", "stop", "1"},
                 {"workers", "stop", "4"},
                 {"leased", "stop-leased", "1"},
                 {"leased, workers", "stop-leased", "4"}};
    world *w = *state;
    use_database(w);
    w->act = act_note_attempts;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char id[40];
        (void)snprintf(id, sizeof id, "0198c5f2-7d3e-7a10-8b2c-%012zx", i);
        w->endpoint = pr_endpoint_free(w->endpoint);
        other stopped = start(w, cases[i].mode, cases[i].threads);
        send_id(w, id);
        CHECK_CASE(hear(&stopped) == 'i', cases[i].label);
        int status = end(&stopped, SIGTERM);
        CHECK_CASE(WIFEXITED(status) && WEXITSTATUS(status) == 0, cases[i].label);
        CHECK_CASE(world_number(w, EFFECTS) == (int64_t)i, cases[i].label);
        CHECK_CASE(world_number(w, "SELECT coalesce(max(attempts), 0) FROM {p}_inbox_parked") == 0,
                   cases[i].label);
        w->opt.inbox = strstr(cases[i].mode, "leased") ? PR_INBOX_LEASED : PR_INBOX_TRANSACTIONAL;
        atomic_store(&w->flag, -1);
        world_start(w);
        world_until(w, handled, 1);
        CHECK_CASE(atomic_load(&w->flag) == 0, cases[i].label);
        CHECK_CASE(world_snapshot(w).failed == 0, cases[i].label);
        CHECK_CASE(world_number(w, EFFECTS) == (int64_t)i + 1, cases[i].label);
        world_until_number(w, PARKED, 0);
    }
}

#ifdef PR_FAULT_POINTS
static void send_batch(world *w)
{
    for (int i = 0; i < BATCH; i++) {
        char id[40];
        (void)snprintf(id, sizeof id, "0198c5f2-7d3e-7a10-8b2c-0000000000%02d", i);
        pr_message message = PR_MESSAGE(.id = id, .type = TYPE_ORDER, .type_version = 1,
                                        .content_type = "application/json",
                                        .destination = "database://topic/" TYPE_ORDER, .body = "{}",
                                        .body_size_bytes = 2, .occurred_at_us = 1767225600000000);
        world_send_message(w, &message);
    }
}

/* Whatever the one that was killed had committed is a duplicate afterwards, and all the rest is
   handled. */
static void a_process_is_killed_in_its_batch(world *w, const char *fault)
{
    w->opt.batch_max = BATCH;
    use_database(w);
    w->endpoint = pr_endpoint_free(w->endpoint);
    send_batch(w);
    other killed = start_with(w, "batch", "1", fault);
    int status = wait_for(&killed);
    close(killed.told);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    uint64_t done = (uint64_t)world_number(w, EFFECTS);
    assert_int_equal(world_number(w, MARKS), done);
    assert_true(strstr(fault, "before") ? done == 0 : done > 1);
    world_start(w);
    world_until(w, duplicate, done);
    world_until(w, handled, BATCH - done);
    assert_int_equal(world_number(w, EFFECTS), BATCH);
    assert_int_equal(world_number(w, "SELECT count(DISTINCT id) FROM effects"), BATCH);
    assert_int_equal(world_number(w, PARKED), 0);
}
#endif

static void a_process_killed_before_its_batch_commits_leaves_nothing(void **state)
{
#ifdef PR_FAULT_POINTS
    a_process_is_killed_in_its_batch(*state, "endpoint.before_batch_commit:1:kill");
#else
    (void)state;
    skip();
#endif
}

static void a_process_killed_between_commit_and_ack_has_one_effect_each(void **state)
{
#ifdef PR_FAULT_POINTS
    a_process_is_killed_in_its_batch(*state, "endpoint.after_batch_commit:1:kill");
#else
    (void)state;
    skip();
#endif
}

size_t process_suite(const struct CMUnitTest **ret_tests)
{
    static const struct CMUnitTest tests[] = {
        CASE(a_busy_delivery_whose_holder_is_killed_is_processed),
        CASE(one_frozen_past_its_lease_can_not_complete),
        CASE(copies_in_three_processes_have_one_effect),
        CASE(the_answer_to_a_dead_requester_is_dead),
        CASE(one_killed_around_its_commit_has_one_effect),
        CASE(one_stopped_in_its_handler_charges_nothing),
        CASE(a_process_killed_before_its_batch_commits_leaves_nothing),
        CASE(a_process_killed_between_commit_and_ack_has_one_effect_each),
    };
    *ret_tests = tests;
    return COUNT_OF(tests);
}
