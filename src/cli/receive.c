/*
 * `postroom receive`: handles messages with a command, from a shell or in any language.
 *
 * The inbox is leased: the command runs outside any transaction, and the mark, with what the
 * command sends, is committed when it has succeeded. SIGTERM and SIGINT stop it: the command in
 * hand may end within the grace period, else it is ended and its message goes back uncharged.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include <postroom/clock.h>
#include <postroom/database.h>
#include <postroom/endpoint.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/time.h"
#include "cli/cli.h"
#include "cli/line.h"
#include "cli/output.h"
#include "cli/receive.h"
#include "cli/receive_news.h"
#include "cli/stop.h"
#include "cli/wiring.h"

#define ORIGIN                "cli.receive"
#define KILL_AFTER_MS_DEFAULT 5000
#define GRACE_MS_DEFAULT      10000
#define TROUBLE_DELAY_MS      1000 /* no process could be started */
#define WATCH_MS              20
#define WORKERS_MAX           256
#define PREFETCH_LINES        32
#define PREFETCH_EXEC         4 /* of each worker: a process a message is slow by itself */
#define PREFETCH_MAX          4096
#define TRANSPORT_NAME        "database"

typedef struct receive_values {
    pr__common common;
    const char *endpoint;
    pr__texts types;
    const char *exec;
    const char *from;
    const char *exchange_prefix;
    const char *owner;
    bool lines;
    bool follow_ups;
    bool verbose;
    int64_t timeout_ms;
    int64_t kill_after_ms;
    int64_t until_idle_ms;
    int64_t retry_max;
    int64_t backoff_initial_ms;
    int64_t backoff_max_ms;
    int64_t lease_ms;
    int64_t grace_ms;
    int64_t parent;
    int64_t workers;
    int64_t prefetch;
} receive_values;

static const pr__option options[] = {
    {"endpoint", PR__OPTION_TEXT, "ID", "who receives: those of one id share its messages",
     offsetof(receive_values, endpoint), 0, 0, NULL},
    {"type", PR__OPTION_LIST, "URN", "what it receives; may be given several times",
     offsetof(receive_values, types), 0, 0, NULL},
    {"exec", PR__OPTION_TEXT, "CMD", "the command that handles a message, run by sh",
     offsetof(receive_values, exec), 0, 0, NULL},
    {"lines", PR__OPTION_FLAG, NULL,
     "run the command once and speak with it in JSON lines, a message and a verdict each",
     offsetof(receive_values, lines), 0, 0, NULL},
    {"follow-ups", PR__OPTION_FLAG, NULL,
     "what the command prints are messages, JSON lines as of send --lines: they are enqueued with "
     "the mark",
     offsetof(receive_values, follow_ups), 0, 0, NULL},
    {"from", PR__OPTION_TEXT, "[NAME=]WHERE",
     "where messages come from: another store, or amqp://HOST; NAME is the scheme of its addresses "
     "(default: the store itself)",
     offsetof(receive_values, from), 0, 0, NULL},
    {"exchange-prefix", PR__OPTION_TEXT, "TEXT",
     "RabbitMQ: stands in front of every exchange and queue",
     offsetof(receive_values, exchange_prefix), 0, 0, NULL},
    {"workers", PR__OPTION_COUNT, "N",
     "so many commands at once; messages of one key stay in order (default 1)",
     offsetof(receive_values, workers), 1, WORKERS_MAX, NULL},
    {"prefetch", PR__OPTION_COUNT, "N",
     "messages that it takes ahead and others of its id do not get; at least the workers (default "
     "32, with a process a message 4 each worker)",
     offsetof(receive_values, prefetch), 1, PREFETCH_MAX, NULL},
    {"timeout", PR__OPTION_DURATION, "TIME",
     "end a command that takes longer for a message, and try again later; 0s = never (default 0s)",
     offsetof(receive_values, timeout_ms), 0, 0, NULL},
    {"kill-after", PR__OPTION_DURATION, "TIME",
     "between SIGTERM and SIGKILL of a command that is to end (default 5s)",
     offsetof(receive_values, kill_after_ms), 0, 0, NULL},
    {"until-idle", PR__OPTION_DURATION, "TIME", "stop when nothing has come for so long",
     offsetof(receive_values, until_idle_ms), 1, 0, NULL},
    {"retry-max", PR__OPTION_COUNT, "N", "retries of a message before it is dead (default 10)",
     offsetof(receive_values, retry_max), 0, 1000000, NULL},
    {"backoff", PR__OPTION_DURATION, "TIME",
     "wait before the first retry of a message; doubles each time (default 5s)",
     offsetof(receive_values, backoff_initial_ms), 1, 0, NULL},
    {"backoff-max", PR__OPTION_DURATION, "TIME", "wait at most so long (default 15m)",
     offsetof(receive_values, backoff_max_ms), 1, 0, NULL},
    {"lease", PR__OPTION_DURATION, "TIME",
     "how long a message is its own, unless renewed; after a crash others take it then (default "
     "30s)",
     offsetof(receive_values, lease_ms), 1, 0, NULL},
    {"grace", PR__OPTION_DURATION, "TIME",
     "when stopped, wait so long for the command in hand (default 10s)",
     offsetof(receive_values, grace_ms), 1, 0, NULL},
    {"owner", PR__OPTION_TEXT, "NAME", "who it is for explain (default: host and process id)",
     offsetof(receive_values, owner), 0, 0, NULL},
    {"parent", PR__OPTION_COUNT, "PID", "stop when this process, which started it, is gone",
     offsetof(receive_values, parent), 1, 0, NULL},
    {"verbose", PR__OPTION_FLAG, NULL, "say on standard error what happens, a line an event",
     offsetof(receive_values, verbose), 0, 0, NULL},
    {NULL, 0, NULL, NULL, 0, 0, 0, NULL},
};

/* ---- stopping ---- */

/* What the handler stops; set before the handler is, and cleared after it is gone. */
static pr_endpoint *volatile running;
static atomic_int_least64_t stopped_at_us; /* monotonic; 0 = it was not told to stop */
static int64_t grace_ms;

static void on_signal(int number)
{
    (void)number;
    atomic_store(&stopped_at_us, pr__monotonic_us());
    if (running)
        pr_endpoint_stop(running);
}

static bool is_stopping(void)
{
    return atomic_load(&stopped_at_us) > 0;
}

/* The message is not ours any more, or the grace of a stop is over. */
static bool is_cancelled(void *scope)
{
    int64_t at_us = atomic_load(&stopped_at_us);
    bool over = at_us > 0 && pr__monotonic_us() >= at_us + grace_ms * 1000;
    return over || pr_scope_cancelled(scope);
}

/* ---- a message ---- */

typedef struct worker {
    pr__receiver receiver;
    bool lines;
    pr__guard guard;
    pr__child_pool pool; /* with lines: the commands, from message to message */
    atomic_int busy;     /* commands that run now */
} worker;

/* Enqueue what the command sends, in the transaction of the mark. */
static pr_status send_follow_ups(const worker *of, pr_scope *scope, pr__buffer *lines,
                                 pr_error *err)
{
    AUTO(pr__arena) arena = pr__arena_new(0);
    const pr_message defaults = PR_MESSAGE(.type_version = 0);
    size_t number = 0;
    if (!arena || lines->failed)
        return pr__fail_nomem(err, ORIGIN);
    for (size_t at = 0; at < lines->size;) {
        const char *line = lines->data + at;
        const char *end = memchr(line, '\n', lines->size - at);
        size_t size = end ? (size_t)(end - line) : lines->size - at;
        at += size + 1;
        number++;
        if (size == 0)
            continue;
        pr_message message = PR_MESSAGE(.type_version = 0);
        pr_status status = pr__line_parse(line, size, &defaults, pr__wall_us(),
                                          of->receiver.body_size_max, arena, &message, err);
        pr_unit *unit = NULL;
        if (status == PR_OK)
            status = pr_scope_unit_get(scope, &unit, err);
        if (status == PR_OK)
            status = pr_unit_enqueue(unit, &message, NULL, err);
        if (status != PR_OK) {
            pr__error_context(err, "message %zu of the command", number);
            return status;
        }
    }
    return PR_OK;
}

static pr_handled finish(const worker *of, pr_scope *scope, pr__answer *answer)
{
    pr_error err = PR_ERROR_INIT;
    if (answer->handled == PR_HANDLED_DEFER)
        return pr_scope_defer(scope, answer->delay_ms < 0 ? TROUBLE_DELAY_MS : answer->delay_ms);
    if (answer->handled == PR_HANDLED_OK &&
        send_follow_ups(of, scope, &answer->follow_ups, &err) != PR_OK) {
        answer->handled = PR_HANDLED_RETRY;
        answer->delay_ms = -1;
        pr__format(answer->reason, sizeof(answer->reason), "%s", err.message);
    }
    if (answer->handled != PR_HANDLED_OK)
        pr_scope_fail(scope, answer->reason, answer->delay_ms);
    return answer->handled;
}

static pr_handled handle(void *user, pr_scope *scope)
{
    worker *of = user;
    pr__answer answer = {.handled = PR_HANDLED_RETRY, .delay_ms = -1};
    atomic_fetch_add(&of->busy, 1);
    if (of->lines)
        pr__receive_line(&of->receiver, &of->pool, scope, &answer);
    else
        pr__receive_exec(&of->receiver, scope, &answer);
    pr_handled handled = finish(of, scope, &answer);
    pr__buffer_done(&answer.follow_ups);
    atomic_fetch_sub(&of->busy, 1);
    return handled;
}

/* ---- until it is idle ---- */

typedef struct watcher {
    pr_endpoint *endpoint;
    worker *of;
    pr__receive_news *news;
    int64_t idle_ms;
    atomic_bool over;
    pthread_t thread;
    bool started;
} watcher;

static uint64_t seen_so_far(pr_endpoint *endpoint)
{
    pr_endpoint_snapshot seen = {.size = (uint32_t)sizeof(seen)};
    pr_status ignored = pr_endpoint_snapshot_get(endpoint, &seen, NULL);
    (void)ignored;
    return seen.received + seen.handled + seen.duplicate + seen.failed + seen.dead + seen.held +
           seen.deferred;
}

static void *watch(void *user)
{
    watcher *w = user;
    uint64_t before = seen_so_far(w->endpoint);
    int64_t since_us = pr__monotonic_us();
    while (!atomic_load(&w->over)) {
        uint64_t now = seen_so_far(w->endpoint);
        if (now != before || atomic_load(&w->of->busy) > 0 || !pr__receive_news_reached(w->news))
            since_us = pr__monotonic_us();
        before = now;
        if (pr__monotonic_us() - since_us >= w->idle_ms * 1000)
            pr_endpoint_stop(w->endpoint);
        pr__sleep_us((int64_t)WATCH_MS * 1000);
    }
    return NULL;
}

/* ---- running ---- */

typedef struct receiving {
    pr_store *store;
    pr__link link; /* --from */
    pr_transport *own;
    pr_endpoint *endpoint;
    pr__receive_news news;
    worker of;
} receiving;

static void receiving_done(receiving *r)
{
    pr_endpoint_free(r->endpoint);
    pr__child_pool_done(&r->of.pool, r->of.receiver.kill_after_ms, r->of.receiver.kill_after_ms);
    pr__guard_done(&r->of.guard);
    pr_transport_free(r->own);
    pr__link_done(&r->link);
    pr_store_free(r->store);
    pr__receive_news_done(&r->news);
}

static pr_status check_values(const receive_values *values, pr_error *err)
{
    if (!values->endpoint)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "who receives? add --endpoint ID");
    if (values->types.count == 0)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "what is received? add --type URN");
    if (pr__text_empty(values->exec))
        return pr__fail(err, PR_E_INVALID, ORIGIN, "what handles messages? add --exec 'CMD'");
    if (values->lines && values->follow_ups)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "--lines and --follow-ups together; a verdict has its own \"send\"");
    if (values->prefetch != PR__UNSET && values->prefetch < pr__option_or(values->workers, 1))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "--prefetch is %lld, less than --workers: some would never have a message",
                        (long long)values->prefetch);
    return PR_OK;
}

static pr_status open_transport(const receive_values *values, receiving *r,
                                pr_transport **ret_transport, pr_error *err)
{
    pr_database_options opt = {
        .size = (uint32_t)sizeof(opt), .name = TRANSPORT_NAME, .owner = values->owner};
    if (values->from) {
        pr__link_request link = {.text = values->from,
                                 .common = &values->common,
                                 .owner = values->owner,
                                 .exchange_prefix = values->exchange_prefix};
        TRY(pr__wiring_link(&link, &r->link, err));
        *ret_transport = r->link.transport;
        return PR_OK;
    }
    TRY(pr_database_transport_new(r->store, &opt, &r->own, err));
    *ret_transport = r->own;
    return PR_OK;
}

static uint32_t prefetch_of(const receive_values *values, uint32_t workers)
{
    uint32_t common = values->lines ? PREFETCH_LINES : PREFETCH_EXEC * workers;
    return (uint32_t)pr__option_or(values->prefetch, workers > common ? workers : common);
}

/* What runs the commands; before there is a thread or a file that the guard could inherit. */
static pr_status open_commands(const receive_values *values, worker *of, uint32_t workers,
                               pr_error *err)
{
    of->lines = values->lines;
    of->receiver = (pr__receiver){
        .guard = &of->guard,
        .command = values->exec,
        .endpoint = values->endpoint,
        .timeout_ms = pr__option_or(values->timeout_ms, 0),
        .kill_after_ms = pr__option_or(values->kill_after_ms, KILL_AFTER_MS_DEFAULT),
        .body_size_max = PR_BODY_SIZE_DEFAULT,
        .follow_ups = values->follow_ups,
        .cancelled = is_cancelled,
        .stopping = is_stopping,
    };
    TRY(pr__guard_start(of->receiver.kill_after_ms, &of->guard, err));
    return values->lines ? pr__child_pool_init(&of->pool, workers, err) : PR_OK;
}

static pr_status open_receiving(const receive_values *values, receiving *r, pr_error *err)
{
    pr__store_request request = {.common = &values->common};
    pr_transport *transport = NULL;
    TRY(check_values(values, err));
    uint32_t workers = (uint32_t)pr__option_or(values->workers, 1);
    TRY(open_commands(values, &r->of, workers, err));
    TRY(pr__wiring_store(&request, &r->store, err));
    TRY(open_transport(values, r, &transport, err));
    pr_endpoint_options opt =
        PR_ENDPOINT_OPTIONS(.id = values->endpoint, .types = values->types.items,
                            .type_count = values->types.count, .handler = handle, .user = &r->of,
                            .inbox = PR_INBOX_LEASED, .concurrency = workers,
                            .prefetch = prefetch_of(values, workers),
                            .retry_max = pr__option_count(values->retry_max, PR_RETRY_NONE),
                            .backoff_initial_ms = pr__option_or(values->backoff_initial_ms, 0),
                            .backoff_max_ms = pr__option_or(values->backoff_max_ms, 0),
                            .lease_ms = pr__option_or(values->lease_ms, 0),
                            .stop_grace_ms = pr__option_or(values->grace_ms, GRACE_MS_DEFAULT),
                            .owner = values->owner, .observer = &r->news.observer);
    return pr_endpoint_new(r->store, transport, &opt, &r->endpoint, err);
}

static void print_summary(pr__cli *cli, const pr_endpoint_snapshot *seen)
{
    AUTO_BUFFER out = PR_BUFFER_INIT;
    pr__json json;
    if (!cli->json) {
        pr__buffer_printf(&out,
                          "%llu handled, %llu failed, %llu dead, %llu deferred, "
                          "%llu duplicates",
                          (unsigned long long)seen->handled, (unsigned long long)seen->failed,
                          (unsigned long long)seen->dead, (unsigned long long)seen->deferred,
                          (unsigned long long)seen->duplicate);
        pr__print_buffer(cli, &out);
        return;
    }
    pr__json_init(&json, &out);
    pr__json_object_begin(&json);
    pr__json_member_uint(&json, "received", seen->received);
    pr__json_member_uint(&json, "handled", seen->handled);
    pr__json_member_uint(&json, "failed", seen->failed);
    pr__json_member_uint(&json, "dead", seen->dead);
    pr__json_member_uint(&json, "deferred", seen->deferred);
    pr__json_member_uint(&json, "held", seen->held);
    pr__json_member_uint(&json, "duplicate", seen->duplicate);
    pr__json_member_uint(&json, "conflict", seen->conflict);
    pr__json_member_uint(&json, "requeued", seen->requeued);
    pr__json_member_uint(&json, "fenced", seen->fenced);
    pr__json_object_end(&json);
    pr__print_buffer(cli, &out);
}

static pr__exit receive(pr__cli *cli, const receive_values *values, receiving *r)
{
    pr_error err = PR_ERROR_INIT;
    pr_endpoint_snapshot seen = {.size = (uint32_t)sizeof(seen)};
    watcher w = {
        .endpoint = r->endpoint, .of = &r->of, .news = &r->news, .idle_ms = values->until_idle_ms};
    running = r->endpoint;
    grace_ms = pr__option_or(values->grace_ms, GRACE_MS_DEFAULT);
    pr__stop_watch(on_signal);
    if (values->parent != PR__UNSET && !pr__stop_with_parent(values->parent))
        pr_endpoint_stop(r->endpoint);
    if (values->until_idle_ms != PR__UNSET)
        w.started = pthread_create(&w.thread, NULL, watch, &w) == 0;
    pr_status status = pr_endpoint_run(r->endpoint, &err);
    pr__stop_watch(SIG_DFL);
    running = NULL;
    atomic_store(&w.over, true);
    if (w.started)
        pthread_join(w.thread, NULL);
    if (pr_endpoint_snapshot_get(r->endpoint, &seen, NULL) == PR_OK)
        print_summary(cli, &seen);
    if (status != PR_OK && status != PR_E_CANCELLED)
        return pr__report_error(cli, &err);
    if (values->until_idle_ms != PR__UNSET && !is_stopping() && r->news.trouble.status != PR_OK)
        return PR__EXIT_FAILED; /* it was silent, not idle; why was said when it began */
    return PR__EXIT_OK;
}

static pr__exit run(pr__cli *cli, const void *v)
{
    const receive_values *values = v;
    pr_error err = PR_ERROR_INIT;
    receiving r = {.store = NULL};
    pr__exit code;
    pr__receive_news_init(&r.news, cli, values->verbose);
    if (open_receiving(values, &r, &err) != PR_OK)
        code = pr__report_error(cli, &err);
    else
        code = receive(cli, values, &r);
    receiving_done(&r);
    return code;
}

const pr__command pr__command_receive = {
    .name = "receive",
    .arguments = "--endpoint ID --type URN --exec 'CMD'",
    .summary = "handle messages with a command",
    .details =
        "The command gets the body on its standard input and the envelope in POSTROOM_ variables "
        "of its environment. Exit 0: done, once and for all; 65: dead at once; anything else, 75 "
        "for one: tried again later. Runs until SIGTERM or SIGINT. With --until-idle it exits 1 "
        "when no messages could come. A failed message is listed by `inbox list`, a dead one by "
        "`dead list`.",
    .options = options,
    .values_size = sizeof(receive_values),
    .uses_store = true,
    .run = run,
};
