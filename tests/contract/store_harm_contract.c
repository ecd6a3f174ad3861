/*
 * Commands that are killed beside their commit, and calls that run out of memory, on every store:
 * what was not committed did not happen, and nothing is half done. Needs the fault points.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "base/fault.h"
#include "base/text.h"
#include "contract/inbox_steps.h"
#include "contract/operations_steps.h"
#include "contract/store_operations_cases.h"

#define ALLOCATIONS_MAX 2000

#ifdef PR_FAULT_POINTS

/* What stands before each command: a dead message, a dead row of the inbox, a delayed one, a due
   retry. */
static void prepare(store_fixture *fix)
{
    post_dead(fix, NULL, DESTINATION);
    pr_message delayed = PR_MESSAGE(.type = TYPE_PAID, .body = "", .body_size_bytes = 0,
                                    .deliver_at_us = store_now_us(fix) + 60000000);
    post_message(fix, &delayed);
    park_at(fix, CONSUMER, "m-1", NULL, PR_STATE_DEAD);
    assert_true(inbox_park_row(fix, "m-2", NULL, PR_STATE_FAILED, 0));
}

static void ask_id(store_fixture *fix, const char *sql, char id[64])
{
    pr_error err = PR_ERROR_INIT;
    check_ok(fix->provider->ask(fix->world, sql, id, 64, &err), &err, sql);
}

static pr_status do_redrive(store_fixture *fix, pr_error *err)
{
    pr_redrive_options opt = redrive_where(NULL, NULL);
    return pr_operations_redrive(store_at(fix, 0), &opt, NULL, err);
}

static pr_status do_redrive_inbox(store_fixture *fix, pr_error *err)
{
    pr_redrive_options opt = redrive_one("m-1");
    opt.box = PR_BOX_INBOX;
    opt.consumer = CONSUMER;
    return pr_operations_redrive(store_at(fix, 0), &opt, NULL, err);
}

static pr_status do_discard(store_fixture *fix, pr_error *err)
{
    char id[64];
    ask_id(fix, "SELECT message_id FROM {p}_outbox_parked WHERE state = 'dead'", id);
    return pr_operations_discard(store_at(fix, 0), id, NULL, OPERATOR, REASON, err);
}

static pr_status do_discard_inbox(store_fixture *fix, pr_error *err)
{
    return pr_operations_discard(store_at(fix, 0), "m-1", CONSUMER, OPERATOR, REASON, err);
}

static pr_status do_cancel(store_fixture *fix, pr_error *err)
{
    char id[64];
    ask_id(fix, "SELECT message_id FROM {p}_outbox_parked WHERE reader = 0", id);
    return pr_operations_cancel(store_at(fix, 0), id, OPERATOR, REASON, err);
}

static pr_status do_claim(store_fixture *fix, pr_error *err)
{
    pr__batch *batch = NULL;
    pr__inbox_claim_options opt = {.consumer = CONSUMER,
                                   .owner = "tester",
                                   .lease_ms = LEASE_MS,
                                   .batch_max = 10,
                                   .order = PR_ORDER_HOLD};
    pr_status status = pr__store_inbox_claim(store_at(fix, 0), &opt, &batch, err);
    pr__batch_free(batch);
    return status;
}

static const struct {
    const char *point; /* the step beside whose commit it is killed */
    pr_status (*run)(store_fixture *fix, pr_error *err);
    const char *sql; /* tells whether it happened */
    const char *before, *after;
} commands[] = {
    {"redrive", do_redrive,
     "SELECT state || (SELECT count(*) FROM {p}_audit) FROM {p}_outbox_state WHERE reader = 1 AND "
     "state <> 'delayed'",
     "dead0", "pending1"},
    {"redrive", do_redrive_inbox,
     "SELECT state || (SELECT count(*) FROM {p}_audit) FROM {p}_inbox_state WHERE message_id = "
     "'m-1'",
     "dead0", "pending1"},
    {"discard", do_discard,
     "SELECT count(*) || ' ' || (SELECT count(*) FROM {p}_outbox_parked WHERE reader = 1) || "
     "(SELECT count(*) FROM {p}_audit) FROM {p}_outbox",
     "1 10", "0 01"},
    {"discard", do_discard_inbox,
     "SELECT count(*) || ' ' || (SELECT count(*) FROM {p}_inbox) || (SELECT count(*) FROM "
     "{p}_audit) FROM {p}_inbox_parked WHERE message_id = 'm-1'",
     "1 00", "0 11"},
    {"cancel", do_cancel,
     "SELECT count(*) || '' || (SELECT count(*) FROM {p}_audit) FROM {p}_outbox_parked WHERE "
     "reader = 0",
     "10", "01"},
    {"inbox_claim", do_claim,
     "SELECT state || CASE WHEN lock_token IS NULL THEN 0 ELSE 1 END FROM {p}_inbox_parked "
     "WHERE message_id = 'm-2'",
     "failed0", "processing1"},
};

/* n: the command, twice; one more for the point after the commit. */
static int run_and_be_killed(store_fixture *fix, int n)
{
    char spec[80];
    pr__format(spec, sizeof spec, "store.%s_%s_commit:1:kill", n % 2 ? "after" : "before",
               commands[n / 2].point);
    pr__fault_reset(spec);
    (void)commands[n / 2].run(fix, NULL);
    return 0;
}

static void check_killed(int pid, const char *label)
{
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    CHECK_CASE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, label);
}

void case_a_command_killed_beside_its_commit_is_whole_or_nothing(void **state)
{
    store_fixture *fix = *state;
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        pr_error err = PR_ERROR_INIT;
        fix->provider->end(fix->world);
        fix->world = NULL;
        check_ok(fix->provider->begin(NULL, &fix->world, &err), &err, "another database");
        prepare(fix);
        close_stores(fix);
        check_killed(start_child(fix, run_and_be_killed, (int)i * 2), commands[i].point);
        check_sql(fix, commands[i].sql, commands[i].before, commands[i].point);
        check_killed(start_child(fix, run_and_be_killed, (int)i * 2 + 1), commands[i].point);
        check_sql(fix, commands[i].sql, commands[i].after, commands[i].point);
    }
}

static bool pass_on(void *user, const pr_record *record)
{
    (void)user, (void)record;
    return true;
}

static pr_status do_list(store_fixture *fix, pr_error *err)
{
    pr_list_options opt = list_of(PR_BOX_BOTH, PR_STATE_DEAD);
    return pr_operations_list(store_at(fix, 0), &opt, NULL, pass_on, NULL, err);
}

static pr_status do_list_any(store_fixture *fix, pr_error *err)
{
    pr_list_options opt = list_of(PR_BOX_OUTBOX, 0);
    return pr_operations_list(store_at(fix, 0), &opt, NULL, pass_on, NULL, err);
}

static pr_status do_show(store_fixture *fix, pr_error *err)
{
    return pr_operations_show(store_at(fix, 0), "m-1", pass_on, NULL, err);
}

static pr_status do_explain(store_fixture *fix, pr_error *err)
{
    pr_explanation explanation = {.size = (uint32_t)sizeof explanation};
    return pr_operations_explain(store_at(fix, 0), "m-1", &explanation, err);
}

void case_out_of_memory_is_told_and_nothing_is_half_done(void **state)
{
    store_fixture *fix = *state;
    static const struct {
        const char *label;
        pr_status (*run)(store_fixture *fix, pr_error *err);
    } calls[] = {
        {"list of both", do_list},
        {"list of the outbox", do_list_any},
        {"show", do_show},
        {"explain", do_explain},
        {"claim of a retry", do_claim},
        {"redrive in the inbox", do_redrive_inbox},
        {"discard in the inbox", do_discard_inbox},
    };
    prepare(fix);
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        /* a handle of its own each time: its statements have to be prepared as well */
        bool done = false;
        for (int64_t n = 1; !done; n++) {
            CHECK_CASE(n < ALLOCATIONS_MAX, calls[i].label);
            close_stores(fix);
            (void)store_at(fix, 0);
            pr_error err = PR_ERROR_INIT;
            if (calls[i].run == do_discard_inbox) /* redriven by the call before it */
                run_sql(fix, "UPDATE {p}_inbox_parked SET state = 'dead' WHERE message_id = 'm-1'");
            pr__fault_alloc_fail_at(n);
            pr_status status = calls[i].run(fix, &err);
            bool reached = pr__fault_alloc_count() >= n;
            pr__fault_alloc_fail_at(0);
            done = !reached;
            if (reached && status == PR_OK)
                fail_msg("case '%s': allocation %lld failed unnoticed", calls[i].label,
                         (long long)n);
            if (!reached)
                check_ok(status, &err, calls[i].label);
            else if (status != PR_E_NOMEM)
                fail_msg("case '%s', allocation %lld: %s", calls[i].label, (long long)n,
                         err.message);
        }
    }
    check_sql(fix, "SELECT count(*) FROM {p}_audit", "2", "each was done once");
    check_sql(fix, "SELECT count(*) FROM {p}_inbox", "1", "one mark");
    check_sql(fix, "SELECT state FROM {p}_inbox_parked", "processing", "the retry is claimed");
}

#else

void case_a_command_killed_beside_its_commit_is_whole_or_nothing(void **state)
{
    (void)state;
    skip();
}

void case_out_of_memory_is_told_and_nothing_is_half_done(void **state)
{
    (void)state;
    skip();
}

#endif
