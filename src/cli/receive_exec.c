/*
 * One process a message: the body on its standard input, the envelope in its environment, its exit
 * code is the verdict.
 *
 * Keeps: exit 0 and nothing else is "done"; a command that was told to end, because of its time or
 * because we stop, is not believed any more.
 */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/error.h"
#include "base/text.h"
#include "base/time.h"
#include "cli/receive.h"

#define ORIGIN         "cli.receive"
#define EXIT_PERMANENT 65  /* EX_DATAERR of sysexits.h */
#define SIGNAL_BASE    128 /* of a shell's exit code for a signal */
#define TOGETHER_MS    100 /* between two signals that were sent at once */
#define FOLLOW_UPS_MAX ((size_t)64 * 1024 * 1024)

/* A shell whose command was told to end says so by its exit code. */
static bool was_told_to_end(int status)
{
    return WIFSIGNALED(status) || WEXITSTATUS(status) == SIGNAL_BASE + SIGTERM ||
           WEXITSTATUS(status) == SIGNAL_BASE + SIGINT;
}

static bool ended_with_us(const pr__receiver *receiver, const pr__child *child)
{
    int64_t until_us = pr__monotonic_us() + (int64_t)TOGETHER_MS * 1000;
    if (!was_told_to_end(child->status))
        return false;
    while (!receiver->stopping() && pr__monotonic_us() < until_us)
        pr__sleep_us(1000); /* its signal came first */
    return receiver->stopping();
}

pr_handled pr__receive_end(const pr__receiver *receiver, const pr__child *child, char *out,
                           size_t size)
{
    char how[64];
    if (child->exec_errno != 0) {
        pr__format(out, size, "/bin/sh could not be run: %s", strerrordesc_np(child->exec_errno));
        return PR_HANDLED_DEFER;
    }
    pr__child_end_text(child, how, sizeof(how));
    pr__format(out, size, "the command %s", how);
    return ended_with_us(receiver, child) ? PR_HANDLED_DEFER : PR_HANDLED_RETRY;
}

static void judge_exit(const pr__receiver *receiver, const pr__child *child, pr__answer *answer)
{
    int code = WIFEXITED(child->status) ? WEXITSTATUS(child->status) : -1;
    answer->handled = pr__receive_end(receiver, child, answer->reason, sizeof(answer->reason));
    if (answer->handled == PR_HANDLED_DEFER)
        return;
    if (code == 0)
        answer->handled = PR_HANDLED_OK;
    else if (code == EXIT_PERMANENT)
        answer->handled = PR_HANDLED_PERMANENT;
}

static void judge(const pr__receiver *receiver, pr__child_end end, pr__child *child,
                  pr__answer *answer)
{
    answer->handled = PR_HANDLED_RETRY;
    switch (end) {
    case PR__CHILD_ENDED:
        judge_exit(receiver, child, answer);
        return;
    case PR__CHILD_TIMED_OUT:
        pr__format(answer->reason, sizeof(answer->reason), "the command ran longer than %lld ms",
                   (long long)receiver->timeout_ms);
        break;
    case PR__CHILD_CANCELLED:
        answer->handled = PR_HANDLED_DEFER;
        pr__format(answer->reason, sizeof(answer->reason), "stopped before the command ended");
        break;
    case PR__CHILD_ANSWERED: /* these two only with until_line */
    case PR__CHILD_CLOSED:
    case PR__CHILD_TOO_LONG:
        pr__format(answer->reason, sizeof(answer->reason),
                   "the command printed more than %zu bytes of messages", FOLLOW_UPS_MAX);
        break;
    }
    pr__child_stop(child, 0, receiver->kill_after_ms);
}

void pr__receive_exec(const pr__receiver *receiver, pr_scope *scope, pr__answer *ret_answer)
{
    const pr_message *message = pr_scope_message(scope);
    AUTO(pr__arena) arena = pr__arena_new(0);
    char **environment = arena ? pr__receive_environment(receiver, scope, arena) : NULL;
    pr_error err = PR_ERROR_INIT;
    pr__child child = {.pid = 0};
    pr__exchange exchange = {.input = message->body,
                             .input_size = (size_t)message->body_size_bytes,
                             .close_input = true,
                             .output_max = FOLLOW_UPS_MAX,
                             .timeout_ms = receiver->timeout_ms,
                             .cancelled = receiver->cancelled,
                             .user = scope};
    pr_status status = environment
                           ? pr__child_start(receiver->guard, receiver->command, environment,
                                             receiver->follow_ups, &child, &err)
                           : pr__fail_nomem(&err, ORIGIN);
    if (status != PR_OK) { /* our own trouble: no message is charged */
        ret_answer->handled = PR_HANDLED_DEFER;
        ret_answer->delay_ms = -1;
        pr__format(ret_answer->reason, sizeof(ret_answer->reason), "%s", err.message);
        return;
    }
    judge(receiver, pr__child_exchange(&child, &exchange), &child, ret_answer);
    ret_answer->follow_ups = exchange.output;
}
