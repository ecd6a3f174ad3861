/*
 * `postroom relay`: carries messages from a store's outbox to other stores, for ever or once.
 *
 * SIGTERM and SIGINT ask it to stop: the round in hand is finished within the grace period and what
 * is held is released. A second one ends the process at once, which loses nothing either.
 */
#include <signal.h>
#include <unistd.h>

#include <postroom/amqp.h>
#include <postroom/observer.h>
#include <postroom/relay.h>

#include "base/error.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/event.h"
#include "cli/output.h"
#include "cli/stop.h"
#include "cli/wiring.h"

#define ORIGIN    "cli.relay"
#define LINKS_MAX 16

typedef struct relay_values {
    pr__common common;
    pr__texts to;
    const char *transport_name;
    const char *exchange_prefix;
    bool cloudevents;
    int64_t window;
    const char *owner;
    const char *doorbell;
    bool once;
    bool verbose;
    int64_t parent;
    int64_t lease_ms;
    int64_t batch;
    double rate;
    int64_t retry_max;
    int64_t backoff_initial_ms;
    int64_t backoff_max_ms;
    int64_t order;
    int64_t poll_ms;
    int64_t poll_idle_ms;
    int64_t grace_ms;
} relay_values;

static const char *const orders[] = {"hold", "skip", "halt", NULL};

static const pr__option options[] = {
    {"to", PR__OPTION_LIST, "[NAME=]WHERE",
     "a store, or a RabbitMQ broker by its URI (amqp://, amqps://, or amqp: for what the "
     "environment's POSTROOM_AMQP says); NAME is the scheme of the addresses that it serves; may "
     "be "
     "given several times",
     offsetof(relay_values, to), 0, 0, NULL},
    {"transport-name", PR__OPTION_TEXT, "NAME",
     "the scheme of a --to without NAME (default database, or rabbitmq)",
     offsetof(relay_values, transport_name), 0, 0, NULL},
    {"exchange-prefix", PR__OPTION_TEXT, "TEXT",
     "RabbitMQ: stands in front of every exchange and queue (default none)",
     offsetof(relay_values, exchange_prefix), 0, 0, NULL},
    {"cloudevents", PR__OPTION_FLAG, NULL,
     "RabbitMQ: publish in the binary mode of CloudEvents 1.0 as well",
     offsetof(relay_values, cloudevents), 0, 0, NULL},
    {"window", PR__OPTION_COUNT, "N", "RabbitMQ: unconfirmed messages at most (default 256)",
     offsetof(relay_values, window), 1, 65535, NULL},
    {"once", PR__OPTION_FLAG, NULL, "send what is due now, then stop", offsetof(relay_values, once),
     0, 0, NULL},
    {"lease", PR__OPTION_DURATION, "TIME",
     "how long claimed messages are its own; after a crash others take over then (default 30s)",
     offsetof(relay_values, lease_ms), 1, 0, NULL},
    {"batch", PR__OPTION_COUNT, "N", "messages a round (default 500)",
     offsetof(relay_values, batch), 1, 100000, NULL},
    {"rate", PR__OPTION_RATE, "N", "messages a second at most; 0 = as fast as it goes (default 0)",
     offsetof(relay_values, rate), 0, 0, NULL},
    {"retry-max", PR__OPTION_COUNT, "N",
     "retries of a message that is refused, before it is dead (default 10)",
     offsetof(relay_values, retry_max), 0, 1000000, NULL},
    {"backoff", PR__OPTION_DURATION, "TIME",
     "wait before the first retry of a message; doubles each time (default 5s)",
     offsetof(relay_values, backoff_initial_ms), 1, 0, NULL},
    {"backoff-max", PR__OPTION_DURATION, "TIME", "wait at most so long (default 15m)",
     offsetof(relay_values, backoff_max_ms), 1, 0, NULL},
    {"order", PR__OPTION_CHOICE, "POLICY",
     "what becomes of later messages of a key when one fails: hold, skip or halt (default: as the "
     "store says)",
     offsetof(relay_values, order), 0, 0, orders},
    {"poll", PR__OPTION_DURATION, "TIME", "look so often while there is traffic (default 5ms)",
     offsetof(relay_values, poll_ms), 1, 0, NULL},
    {"poll-idle", PR__OPTION_DURATION, "TIME", "look so often while there is none (default 50ms)",
     offsetof(relay_values, poll_idle_ms), 1, 0, NULL},
    {"grace", PR__OPTION_DURATION, "TIME",
     "when stopped, wait so long for the round in hand (default 10s)",
     offsetof(relay_values, grace_ms), 1, 0, NULL},
    {"owner", PR__OPTION_TEXT, "NAME", "who it is for explain (default: host and process id)",
     offsetof(relay_values, owner), 0, 0, NULL},
    {"doorbell", PR__OPTION_TEXT, "PATH",
     "a socket on which it hears of commits of other processes at once (default: the environment's "
     "POSTROOM_DOORBELL)",
     offsetof(relay_values, doorbell), 0, 0, NULL},
    {"parent", PR__OPTION_COUNT, "PID", "stop when this process, which started it, is gone",
     offsetof(relay_values, parent), 1, 0, NULL},
    {"verbose", PR__OPTION_FLAG, NULL, "say on standard error what happens, a line an event",
     offsetof(relay_values, verbose), 0, 0, NULL},
    {NULL, 0, NULL, NULL, 0, 0, 0, NULL},
};

/* ---- stopping ---- */

/* What the handler stops; set before the handler is, and cleared after it is gone. */
static pr_relay *volatile running;

static void on_signal(int number)
{
    (void)number;
    if (running)
        pr_relay_stop(running);
}

/* ---- events ---- */

static void observe(void *user, const pr_observation *seen)
{
    pr__event_print(user, seen);
}

/* ---- running ---- */

typedef struct carrier {
    pr_store *store;
    pr__link links[LINKS_MAX];
    pr_transport *transports[LINKS_MAX];
    size_t count;
    pr_relay *relay;
} carrier;

static void carrier_done(carrier *of)
{
    pr_relay_free(of->relay);
    for (size_t i = 0; i < of->count; i++)
        pr__link_done(&of->links[i]);
    pr_store_free(of->store);
}

static pr_status open_carrier(carrier *of, const relay_values *values, const pr_observer *observer,
                              pr_error *err)
{
    pr__store_request request = {.common = &values->common, .observer = observer};
    if (values->to.count == 0)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "nowhere to carry messages to; add --to sqlite:PATH or --to amqp://HOST");
    if (values->to.count > LINKS_MAX)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "more than %d times --to", LINKS_MAX);
    TRY(pr__wiring_store(&request, &of->store, err));
    for (size_t i = 0; i < values->to.count; i++) {
        pr__link_request link = {.text = values->to.items[i],
                                 .name = values->transport_name,
                                 .common = &values->common,
                                 .owner = values->owner,
                                 .observer = observer,
                                 .exchange_prefix = values->exchange_prefix,
                                 .window = (uint32_t)pr__option_or(values->window, 0),
                                 .amqp_flags = values->cloudevents ? PR_AMQP_CLOUDEVENTS : 0};
        TRY(pr__wiring_link(&link, &of->links[i], err));
        of->transports[i] = of->links[i].transport;
        of->count++;
    }
    pr_relay_options opt =
        PR_RELAY_OPTIONS(.batch_max = (uint32_t)pr__option_or(values->batch, 0),
                         .lease_ms = pr__option_or(values->lease_ms, 0),
                         .poll_busy_ms = pr__option_or(values->poll_ms, 0),
                         .poll_idle_ms = pr__option_or(values->poll_idle_ms, 0),
                         .backoff_initial_ms = pr__option_or(values->backoff_initial_ms, 0),
                         .backoff_max_ms = pr__option_or(values->backoff_max_ms, 0),
                         .retry_max = pr__option_count(values->retry_max, PR_RETRY_NONE),
                         .messages_per_second = values->rate,
                         .stop_grace_ms = pr__option_or(values->grace_ms, 0),
                         .order = (pr_order)(pr__option_or(values->order, -1) + 1),
                         .owner = values->owner, .observer = observer,
                         .doorbell = values->doorbell);
    return pr_relay_new(of->store, of->transports, of->count, &opt, &of->relay, err);
}

static uint64_t not_published(const pr_relay_snapshot *seen)
{
    return seen->failed + seen->deferred + seen->dead + seen->lost + seen->expired;
}

static void print_summary(pr__cli *cli, const pr_relay_snapshot *seen)
{
    AUTO_BUFFER out = PR_BUFFER_INIT;
    pr__json json;
    if (!cli->json) {
        pr__buffer_printf(&out, "%llu published", (unsigned long long)seen->published);
        if (not_published(seen) + seen->held + seen->fenced > 0)
            pr__buffer_printf(&out,
                              ", %llu failed, %llu deferred, %llu dead, %llu held, %llu lost, "
                              "%llu expired, %llu fenced",
                              (unsigned long long)seen->failed, (unsigned long long)seen->deferred,
                              (unsigned long long)seen->dead, (unsigned long long)seen->held,
                              (unsigned long long)seen->lost, (unsigned long long)seen->expired,
                              (unsigned long long)seen->fenced);
        pr__print_buffer(cli, &out);
        return;
    }
    pr__json_init(&json, &out);
    pr__json_object_begin(&json);
    pr__json_member_uint(&json, "claimed", seen->claimed);
    pr__json_member_uint(&json, "published", seen->published);
    pr__json_member_uint(&json, "failed", seen->failed);
    pr__json_member_uint(&json, "deferred", seen->deferred);
    pr__json_member_uint(&json, "dead", seen->dead);
    pr__json_member_uint(&json, "held", seen->held);
    pr__json_member_uint(&json, "lost", seen->lost);
    pr__json_member_uint(&json, "expired", seen->expired);
    pr__json_member_uint(&json, "fenced", seen->fenced);
    pr__json_object_end(&json);
    pr__print_buffer(cli, &out);
}

static pr__exit carry(pr__cli *cli, const relay_values *values, carrier *of)
{
    pr_error err = PR_ERROR_INIT;
    pr_relay_snapshot seen = {.size = (uint32_t)sizeof(seen)};
    uint64_t published = 0;
    running = of->relay;
    pr__stop_watch(on_signal);
    if (values->parent != PR__UNSET && !pr__stop_with_parent(values->parent))
        pr_relay_stop(of->relay);
    pr_status status = values->once ? pr_relay_run_once(of->relay, &published, &err)
                                    : pr_relay_run(of->relay, &err);
    pr__stop_watch(SIG_DFL);
    running = NULL;
    pr_status looked = pr_relay_snapshot_get(of->relay, &seen, NULL);
    if (looked == PR_OK)
        print_summary(cli, &seen);
    if (status != PR_OK && status != PR_E_CANCELLED) {
        pr__exit code = pr__report_error(cli, &err);
        return code == PR__EXIT_USAGE ? PR__EXIT_FAILED : code;
    }
    if (values->once && looked == PR_OK && not_published(&seen) > 0)
        return pr__report(cli, PR__EXIT_PARTIAL, "partial",
                          "%llu %s not published; see postroom outbox list --state "
                          "failed, and postroom explain ID",
                          (unsigned long long)not_published(&seen),
                          not_published(&seen) == 1 ? "message was" : "messages were");
    return PR__EXIT_OK;
}

static pr__exit run(pr__cli *cli, const void *v)
{
    const relay_values *values = v;
    pr_error err = PR_ERROR_INIT;
    carrier of = {.store = NULL};
    pr_observer observer = {.size = (uint32_t)sizeof(observer), .observe = observe, .user = cli};
    pr__exit code;
    if (open_carrier(&of, values, values->verbose ? &observer : NULL, &err) != PR_OK)
        code = pr__report_error(cli, &err);
    else
        code = carry(cli, values, &of);
    carrier_done(&of);
    return code;
}

const pr__command pr__command_relay = {
    .name = "relay",
    .arguments = "--to [NAME=]WHERE",
    .summary = "carry messages from the outbox to other stores or a broker",
    .details =
        "Runs until SIGTERM or SIGINT, finishes the round in hand, and prints what it did. Any "
        "number of relays may work on one store. With --once it exits 5 when messages were not "
        "published.",
    .options = options,
    .values_size = sizeof(relay_values),
    .uses_store = true,
    .run = run,
};
