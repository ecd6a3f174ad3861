/*
 * A command that runs for long: a JSON line a message on its standard input, a JSON line a verdict
 * on its standard output.
 *
 * Keeps: a verdict counts only when it names the message in hand; a command that says anything
 * else, or too late, is ended and started anew for the next message.
 */
#include <string.h>

#include <jansson.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/receive.h"

#define ORIGIN     "cli.receive"
#define ANSWER_MAX ((size_t)64 * 1024 * 1024)

static void say(pr__answer *answer, pr_handled handled, const char *reason, size_t size)
{
    answer->handled = handled;
    pr__one_line(answer->reason, sizeof(answer->reason), reason, size);
}

static void say_text(pr__answer *answer, pr_handled handled, const char *reason)
{
    say(answer, handled, reason, strlen(reason));
}

/* ---- a verdict ---- */

static bool read_handled(const json_t *verdict, pr_handled *ret_handled)
{
    static const struct {
        const char *name;
        pr_handled handled;
    } names[] = {{"ok", PR_HANDLED_OK},
                 {"retry", PR_HANDLED_RETRY},
                 {"permanent", PR_HANDLED_PERMANENT},
                 {"defer", PR_HANDLED_DEFER}};
    const char *text = json_string_value(json_object_get(verdict, "verdict"));
    for (size_t i = 0; text && i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i].name, text) == 0) {
            *ret_handled = names[i].handled;
            return true;
        }
    }
    return false;
}

static bool read_delay(const json_t *verdict, int64_t *ret_delay_ms)
{
    json_t *delay = json_object_get(verdict, "delay");
    if (!delay)
        return true;
    return json_is_string(delay) && pr__parse_duration_ms(json_string_value(delay), ret_delay_ms);
}

static int append(const char *piece, size_t size, void *user)
{
    pr__buffer_append(user, piece, size);
    return 0;
}

/* Follow-ups become lines again, as `postroom send --lines` reads them. */
static bool read_follow_ups(const json_t *verdict, pr__buffer *out)
{
    json_t *list = json_object_get(verdict, "send");
    if (list && !json_is_array(list))
        return false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_dump_callback(json_array_get(list, i), append, out, JSON_COMPACT | JSON_ENCODE_ANY);
        pr__buffer_append_char(out, '\n');
    }
    return true;
}

/* NULL: it is one; else what is wrong with it. */
static const char *read_verdict(const char *line, size_t size, const char *id, pr__answer *answer)
{
    json_error_t where = {.line = 0};
    json_t *verdict = json_loadb(line, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where);
    const char *wrong = NULL;
    const char *named = json_string_value(json_object_get(verdict, "id"));
    const json_t *reason = json_object_get(verdict, "reason");
    pr_handled handled = PR_HANDLED_RETRY;
    if (!verdict && json_error_code(&where) == json_error_numeric_overflow)
        wrong = "a number is too large; give such a body as \"body_text\"";
    else if (!json_is_object(verdict))
        wrong = "no JSON object";
    else if (!named || strcmp(named, id) != 0)
        wrong = "its \"id\" is not that of the message";
    else if (!read_handled(verdict, &handled))
        wrong = "its \"verdict\" is none of ok, retry, permanent, defer";
    else if (!read_delay(verdict, &answer->delay_ms))
        wrong = "its \"delay\" is no duration such as \"30s\"";
    else if (!read_follow_ups(verdict, &answer->follow_ups))
        wrong = "its \"send\" is no list";
    if (!wrong && json_is_string(reason))
        say(answer, handled, json_string_value(reason), json_string_length(reason));
    else if (!wrong)
        say_text(answer, handled, "the command said so");
    json_decref(verdict);
    return wrong;
}

/* The line, and nothing behind it: what is there too soon belongs to no message. A verdict that
   comes before the message was read leaves half a line where the next one would begin. */
static bool is_out_of_step(const pr__exchange *exchange, pr__answer *answer, const char *id)
{
    char text[128];
    const char *end = memchr(exchange->output.data, '\n', exchange->output.size);
    size_t size = (size_t)(end - exchange->output.data);
    const char *wrong;
    if (size + 1 < exchange->output.size)
        wrong = "more than a line";
    else if (exchange->sent < exchange->input_size)
        wrong = "it came before the message was read";
    else
        wrong = read_verdict(exchange->output.data, size, id, answer);
    if (!wrong)
        return false;
    pr__format(text, sizeof(text), "the command's verdict cannot be used: %s", wrong);
    say_text(answer, PR_HANDLED_RETRY, text);
    answer->delay_ms = -1;
    pr__buffer_done(&answer->follow_ups);
    return true;
}

/* ---- a message ---- */

static pr_status start(const pr__receiver *receiver, pr__child *child, pr_error *err)
{
    AUTO(pr__arena) arena = pr__arena_new(0);
    char **environment = arena ? pr__receive_environment(receiver, NULL, arena) : NULL;
    if (!environment)
        return pr__fail_nomem(err, ORIGIN);
    return pr__child_start(receiver->guard, receiver->command, environment, /* read_output= */ true,
                           child, err);
}

/* What the exchange ended in, and whether the command may go on. */
static bool judge(const pr__receiver *receiver, const pr__exchange *exchange, pr__child_end end,
                  const pr__child *child, const char *id, pr__answer *answer)
{
    char how[256], text[512];
    pr_handled handled;
    switch (end) {
    case PR__CHILD_ANSWERED:
        return !is_out_of_step(exchange, answer, id);
    case PR__CHILD_ENDED:
        handled = pr__receive_end(receiver, child, how, sizeof(how));
        pr__format(text, sizeof(text), "%s before its verdict", how);
        say_text(answer, handled, text);
        return false;
    case PR__CHILD_CLOSED:
        say_text(answer, PR_HANDLED_RETRY,
                 "the command closed its input or its output before its verdict");
        return false;
    case PR__CHILD_TIMED_OUT:
        pr__format(text, sizeof(text), "the command gave no verdict for %lld ms",
                   (long long)receiver->timeout_ms);
        say_text(answer, PR_HANDLED_RETRY, text);
        return false;
    case PR__CHILD_CANCELLED:
        say_text(answer, PR_HANDLED_DEFER, "stopped before the command's verdict");
        answer->delay_ms = 0;
        return false;
    case PR__CHILD_TOO_LONG:
        say_text(answer, PR_HANDLED_RETRY, "the command's verdict is too long");
        return false;
    }
    return false;
}

static void exchange_line(const pr__receiver *receiver, pr__child *child, pr_scope *scope,
                          const pr__buffer *line, pr__answer *answer)
{
    pr__exchange exchange = {.input = line->data,
                             .input_size = line->size,
                             .until_line = true,
                             .output_max = ANSWER_MAX,
                             .timeout_ms = receiver->timeout_ms,
                             .cancelled = receiver->cancelled,
                             .user = scope};
    pr__child_end end = pr__child_exchange(child, &exchange);
    if (!judge(receiver, &exchange, end, child, pr_scope_message(scope)->id, answer))
        pr__child_stop(child, 0, receiver->kill_after_ms);
    pr__buffer_done(&exchange.output);
}

void pr__receive_line(const pr__receiver *receiver, pr__child_pool *pool, pr_scope *scope,
                      pr__answer *ret_answer)
{
    AUTO_BUFFER line = PR_BUFFER_INIT;
    pr_error err = PR_ERROR_INIT;
    pr__child *child = pr__child_pool_take(pool);
    /* it said something that nobody asked for, or went away */
    if (child->pid > 0 && !pr__child_is_idle(child))
        pr__child_stop(child, 0, receiver->kill_after_ms);
    pr__receive_render(receiver, scope, &line);
    pr_status status = line.failed ? pr__fail_nomem(&err, ORIGIN) : PR_OK;
    if (status == PR_OK && child->pid == 0)
        status = start(receiver, child, &err);
    if (status == PR_OK)
        exchange_line(receiver, child, scope, &line, ret_answer);
    else /* our own trouble: no message is charged */
        say_text(ret_answer, PR_HANDLED_DEFER, err.message);
    pr__child_pool_give(pool, child);
}
