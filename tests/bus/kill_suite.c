/*
 * Other processes killed around their commit, one message in a unit or many, and stopped in a
 * handler: nothing is lost, nothing has two effects, nothing is charged.
 */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/time.h"
#include "bus/other.h"

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
    int64_t until_us = pr__monotonic_us() + PATIENCE_US;
    int status = 0;
    pid_t ended = 0;
    while ((ended = waitpid(o->pid, &status, WNOHANG)) == 0 && pr__monotonic_us() < until_us)
        pr__sleep_us(1000);
    if (ended == 0) {
        (void)other_end(o, SIGKILL);
    } else {
        world_other_ended(o->w, o->pid);
        close(o->said);
    }
    if (ended != o->pid || !WIFSIGNALED(status))
        fail_msg("%s: it was not killed at its fault point", label);
}

static void run_kill_case(world *w, const kill_case *c)
{
    other_world(w);
    w->endpoint = pr_endpoint_free(w->endpoint); /* the other one is to get them */
    for (int i = 0; i < c->messages; i++) {
        char id[40];
        (void)snprintf(id, sizeof id, "0198c5f2-7d3e-7a10-8b2c-%012x", i);
        other_send(w, id);
    }
    other killed = other_start_with(w, c->mode, c->threads, c->fault);
    check_killed(&killed, c->label);
    int64_t effects = world_number(w, EFFECTS);
    if (c->effects != ANY && effects != c->effects)
        fail_msg("%s: %lld effects when it is dead, wanted %d", c->label, (long long)effects,
                 c->effects);
    w->opt.inbox = strstr(c->mode, "leased") ? PR_INBOX_LEASED : PR_INBOX_TRANSACTIONAL;
    world_start(w);
    if (c->messages == 1 && c->effects == 1)
        world_until(w, duplicate, 1);
    world_until_number(w, EFFECTS, c->messages);
    world_until_number(w, MARKS, c->messages);
    world_until_number(w, PARKED, 0);
    if (world_number(w, "SELECT count(DISTINCT id) FROM effects") != c->messages)
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
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        run_kill_case(i == 0 ? *state : world_afresh(state), &cases[i]);
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
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        world *w = i == 0 ? *state : world_afresh(state);
        other_world(w);
        w->act = act_note_attempts;
        w->endpoint = pr_endpoint_free(w->endpoint);
        other stopped = other_start(w, cases[i].mode, cases[i].threads);
        other_send(w, ID_A);
        CHECK_CASE(other_hear(&stopped) == 'i', cases[i].label);
        int status = other_end(&stopped, SIGTERM);
        CHECK_CASE(WIFEXITED(status) && WEXITSTATUS(status) == 0, cases[i].label);
        CHECK_CASE(world_number(w, EFFECTS) == 0, cases[i].label);
        CHECK_CASE(world_number(w, "SELECT coalesce(max(attempts), 0) FROM {p}_inbox_parked") == 0,
                   cases[i].label);
        w->opt.inbox = strstr(cases[i].mode, "leased") ? PR_INBOX_LEASED : PR_INBOX_TRANSACTIONAL;
        atomic_store(&w->flag, -1);
        world_start(w);
        world_until(w, handled, 1);
        CHECK_CASE(atomic_load(&w->flag) == 0, cases[i].label);
        CHECK_CASE(world_snapshot(w).failed == 0, cases[i].label);
        CHECK_CASE(world_number(w, EFFECTS) == 1, cases[i].label);
        world_until_number(w, PARKED, 0);
    }
}

#ifdef PR_FAULT_POINTS
/* As the other process does. */
static pr_handled act_write_even(world *w, pr_scope *scope)
{
    const char *id = pr_scope_message(scope)->id;
    if (other_is_odd(id))
        return PR_HANDLED_OK;
    pr_unit *unit = pr_scope_unit(scope);
    return unit && w->provider->effect(unit, id) ? PR_HANDLED_OK : PR_HANDLED_RETRY;
}

#define EVEN_MARKS MARKS " WHERE substr(message_id, 36) IN ('0', '2', '4', '6', '8')"

static void run_batch_kill(world *w, const char *fault, bool committed)
{
    w->opt.batch_max = BATCH;
    other_world(w);
    w->no_effect = true; /* the act decides */
    w->act = act_write_even;
    w->endpoint = pr_endpoint_free(w->endpoint);
    for (int i = 0; i < BATCH; i++) {
        char id[40];
        (void)snprintf(id, sizeof id, "0198c5f2-7d3e-7a10-8b2c-%012d", i);
        other_send(w, id);
    }
    other killed = other_start_with(w, "batch", "1", fault);
    check_killed(&killed, fault);
    int done = (int)world_number(w, MARKS);
    /* of a broker the first may come alone, and are committed before there is a batch */
    int done_max = committed || bus_carrier_in_use ? BATCH : 0;
    CHECK_CASE(done >= (committed ? 2 : 0) && done <= done_max, fault);
    CHECK_CASE(world_number(w, EFFECTS) == world_number(w, EVEN_MARKS), fault);
    world_start(w);
    other_send(w, "0198c5f2-7d3e-7a10-8b2c-000000000098"); /* behind all of them */
    world_until_number(w, MARKS, BATCH + 1);
    CHECK_CASE(atomic_load(&w->calls) == BATCH + 1 - done, fault);
    CHECK_CASE(world_number(w, EFFECTS) == world_number(w, EVEN_MARKS), fault);
    CHECK_CASE(world_number(w, "SELECT count(DISTINCT id) FROM effects") ==
                   world_number(w, EVEN_MARKS),
               fault);
    CHECK_CASE(world_number(w, PARKED) == 0, fault);
}
#endif

/* Half of a batch asks for the unit. Whatever the one that was killed had committed is a duplicate
   afterwards, and all the rest is handled: no mark without its handler, no effect without a mark.
 */
static void one_killed_in_its_batch_leaves_all_or_nothing(void **state)
{
#ifdef PR_FAULT_POINTS
    static const struct {
        const char *fault;
        bool committed;
    } cases[] = {
        {"endpoint.before_handler:2:kill", false},
        {"endpoint.after_handler:2:kill", false},
        {"endpoint.before_batch_marks:1:kill", false},
        {"endpoint.after_batch_marks:1:kill", false},
        {"endpoint.before_batch_commit:1:kill", false},
        {"endpoint.after_batch_commit:1:kill", true},
        {"endpoint.before_ack:2:kill", true},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        run_batch_kill(i == 0 ? *state : world_afresh(state), cases[i].fault, cases[i].committed);
#else
    (void)state;
    skip();
#endif
}

size_t kill_suite(const struct CMUnitTest **ret_tests)
{
    static const struct CMUnitTest tests[] = {
        CASE(one_killed_around_its_commit_has_one_effect),
        CASE(one_stopped_in_its_handler_charges_nothing),
        CASE(one_killed_in_its_batch_leaves_all_or_nothing),
    };
    *ret_tests = tests;
    return COUNT_OF(tests);
}
