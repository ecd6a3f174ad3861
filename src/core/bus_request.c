/*
 * Requests: a message that says where its answer goes, and waiting for it.
 *
 * Owns: a box a transport, a temporary subscription with a thread, where all answers come to; who
 * waits for which answer.
 * Keeps: an answer is given to the request that it names as its cause, once; whatever else comes is
 * counted and dropped; a box vanishes with the bus, and by its expiry when the process dies.
 * Must not know: how a message is sent (bus_send.c), who answers it.
 */
#include <string.h>

#include <postroom/headers.h>

#include "base/error.h"
#include "base/sized.h"
#include "base/text.h"
#include "base/thread.h"
#include "base/time.h"
#include "core/bus.h"
#include "core/message.h"
#include "port/observe.h"
#include "port/store.h"

#define ORIGIN             "bus"
#define TIMEOUT_MS_DEFAULT 30000
#define TIMEOUT_MS_MAX     (24LL * 3600 * 1000)
#define KEEPS_AN_EXPIRY    4 /* a box is renewed so often before it would expire */
#define RECEIVE_MS         50
#define RECEIVE_MAX        16
#define LOOK_US            100000
#define AGAIN_US           200000 /* between two tries to subscribe again */
/* Host clocks differ: an answer must not have expired before it is sent. */
#define CLOCK_SLACK_US (2LL * 3600 * 1000000)

DEFINE_AUTO(pr_headers, pr_headers_free);

/* ---- the box ---- */

static void late(pr_bus *bus, const pr_message *message)
{
    atomic_fetch_add(&bus->late_replies, 1);
    const pr_observation seen = {.size = (uint32_t)sizeof seen,
                                 .kind = PR_OBSERVE_REPLY_LATE,
                                 .count = 1,
                                 .message_id = message->id,
                                 .type = message->type,
                                 .status = PR_E_NOT_FOUND,
                                 .text = "an answer that nobody waits for was dropped"};
    pr__observe(bus->opt.observer, &seen);
}

/* Give it to whoever waits. Out of memory: as if it had not come. */
static void deliver(pr_bus *bus, const pr_message *message)
{
    pr_message own = *message;
    pr_message *copy = NULL;
    own.size = (uint32_t)sizeof own;
    if (pr_message_copy(&own, &copy, NULL) != PR_OK)
        return;
    pr_reply *reply = pr__alloc(sizeof *reply);
    pthread_mutex_lock(&bus->request_mutex);
    pr__request *at = bus->waiting;
    while (at && !(own.causation_id && strcmp(at->id, own.causation_id) == 0))
        at = at->next;
    bool wanted = at && !at->reply && reply;
    if (wanted) {
        reply->message = copy;
        at->reply = reply;
        pthread_cond_broadcast(&bus->answered);
    }
    pthread_mutex_unlock(&bus->request_mutex);
    if (wanted)
        return;
    late(bus, copy);
    pr_message_free(copy);
    pr__free(reply);
}

static pr_status box_subscribe(pr__reply_box *box, pr_error *err)
{
    pr_subscribe_options opt = {.size = (uint32_t)sizeof opt,
                                .endpoint = box->id,
                                .temporary = true,
                                .expiry_ms = box->bus->opt.reply_expiry_ms};
    TRY(pr_transport_open(box->transport, RECEIVE_MS * 20, err));
    return pr_transport_subscribe(box->transport, &opt, &box->subscription, err);
}

static void box_receive(pr__reply_box *box, int64_t *kept_us)
{
    pr_delivery deliveries[RECEIVE_MAX];
    size_t count = 0;
    int64_t now_us = pr__monotonic_us();
    pr_status status = PR_OK;
    if (now_us - *kept_us > box->bus->opt.reply_expiry_ms * 1000 / KEEPS_AN_EXPIRY) {
        *kept_us = now_us;
        status = pr_subscription_keep(box->subscription, NULL);
    }
    if (status == PR_OK || status == PR_E_FENCED)
        status = pr_subscription_receive(box->subscription, RECEIVE_MS, deliveries, RECEIVE_MAX,
                                         &count, NULL);
    for (size_t i = 0; status == PR_OK && i < count; i++) {
        deliver(box->bus, &deliveries[i].message);
        pr_status ignored =
            pr_subscription_settle(box->subscription, deliveries[i].tag, PR_VERDICT_ACK, 0, NULL);
        (void)ignored; /* it may come once more, and is late then */
    }
    if (status != PR_OK) /* it expired, or the connection went: under the same name again */
        box->subscription = pr_subscription_free(box->subscription);
}

static void *box_run(void *user)
{
    pr__reply_box *box = user;
    int64_t kept_us = pr__monotonic_us();
    while (!atomic_load(&box->ending)) {
        if (!box->subscription && box_subscribe(box, NULL) != PR_OK)
            pr__sleep_us(AGAIN_US);
        if (box->subscription)
            box_receive(box, &kept_us);
    }
    box->subscription = pr_subscription_free(box->subscription);
    return NULL;
}

/* Not locked: connecting may take its time, and others wait for their answers meanwhile. */
static pr_status box_make(pr_bus *bus, pr__bus_transport *at, pr_error *err)
{
    pr__reply_box *box = &at->box;
    uint8_t random[10];
    bus->opt.random->fill(bus->opt.random->user, random, sizeof random);
    pr__uuid7(bus->opt.clock->wall_us(bus->opt.clock->user), random, box->id);
    TRY(pr__bus_transport_clone(at, &box->transport, err));
    TRY(box_subscribe(box, err));
    atomic_store(&box->ending, false);
    return PR_OK;
}

static void box_done(pr__reply_box *box)
{
    box->subscription = pr_subscription_free(box->subscription);
    box->transport = pr_transport_free(box->transport);
}

/* Locked by the caller; unlocked while it connects. */
static pr_status box_open(pr_bus *bus, pr__bus_transport *at, pr_error *err)
{
    pr__reply_box *box = &at->box;
    box->opening = true;
    pthread_mutex_unlock(&bus->request_mutex);
    pr_status status = box_make(bus, at, err);
    pthread_mutex_lock(&bus->request_mutex);
    if (status == PR_OK && atomic_load(&bus->started)) {
        box->running = pr__thread_start(&box->thread, box_run, box);
        if (!box->running)
            status = pr__fail_nomem(err, ORIGIN);
    }
    if (!box->running)
        box_done(box);
    box->opening = false;
    pthread_cond_broadcast(&bus->answered);
    return status;
}

/* Locked by the caller. */
static void cancel_all(pr_bus *bus)
{
    for (pr__request *at = bus->waiting; at; at = at->next)
        atomic_store(&at->cancelled, true);
    pthread_cond_broadcast(&bus->answered);
}

void pr__bus_cancel_requests(pr_bus *bus)
{
    pthread_mutex_lock(&bus->request_mutex);
    cancel_all(bus);
    pthread_mutex_unlock(&bus->request_mutex);
}

void pr__bus_end_requests(pr_bus *bus)
{
    pthread_mutex_lock(&bus->request_mutex);
    cancel_all(bus);
    while (bus->asking > 0)
        pr__cond_wait_us(&bus->answered, &bus->request_mutex, LOOK_US);
    pthread_mutex_unlock(&bus->request_mutex);
    for (uint32_t i = 0; i < bus->transport_count; i++) {
        pr__reply_box *box = &bus->transports[i].box;
        if (!box->running)
            continue;
        atomic_store(&box->ending, true);
        pthread_join(box->thread, NULL);
        box->running = false;
        box->transport = pr_transport_free(box->transport);
    }
}

/* ---- a request ---- */

/* A box runs, or the time is over. Locked. */
static pr_status have_box(pr_bus *bus, pr__bus_transport *at, int64_t until_us, pr_error *err)
{
    while (atomic_load(&bus->started) && !at->box.running) {
        int64_t left_us = until_us - pr__monotonic_us();
        if (!at->box.opening)
            TRY(box_open(bus, at, err));
        else if (left_us > 0)
            pr__cond_wait_us(&bus->answered, &bus->request_mutex,
                             left_us < LOOK_US ? left_us : LOOK_US);
        else
            return pr__fail_retry(err, PR_E_BUSY, PR_RETRY_SAME, ORIGIN,
                                  "the subscription for answers on '%s' is not made yet",
                                  at->given->name);
    }
    if (!atomic_load(&bus->started))
        return pr__fail(err, PR_E_STATE, ORIGIN, "the bus is not started: no answer could come");
    return PR_OK;
}

static pr_status begin(pr_bus *bus, pr__bus_transport *at, pr__request *request, int64_t until_us,
                       pr_error *err)
{
    pthread_mutex_lock(&bus->request_mutex);
    bus->asking++;
    pr_status status = have_box(bus, at, until_us, err);
    if (status == PR_OK) {
        request->next = bus->waiting;
        bus->waiting = request;
    } else {
        bus->asking--;
        pthread_cond_broadcast(&bus->answered);
    }
    pthread_mutex_unlock(&bus->request_mutex);
    return status;
}

/* Wait until it is answered, cancelled or too late; nobody finds it afterwards. */
static void await(pr_bus *bus, pr__request *request, int64_t until_us)
{
    pthread_mutex_lock(&bus->request_mutex);
    while (!request->reply && !atomic_load(&request->cancelled)) {
        int64_t left_us = until_us - pr__monotonic_us();
        if (left_us <= 0)
            break;
        pr__cond_wait_us(&bus->answered, &bus->request_mutex,
                         left_us < LOOK_US ? left_us : LOOK_US);
    }
    pr__request **link = &bus->waiting;
    while (*link != request)
        link = &(*link)->next;
    *link = request->next;
    bus->asking--;
    pthread_cond_broadcast(&bus->answered);
    pthread_mutex_unlock(&bus->request_mutex);
}

static bool type_wanted(const pr_request_options *opt, const char *type)
{
    if (!opt->reply_types)
        return true;
    for (size_t i = 0; i < opt->reply_type_count; i++) {
        if (pr__text_equal(opt->reply_types[i], type))
            return true;
    }
    return false;
}

static pr_status check_reply(const pr_bus *bus, const pr_request_options *opt, pr_reply *reply,
                             pr_error *err)
{
    const pr_message *message = reply->message;
    if (!type_wanted(opt, message->type))
        return pr__fail(err, PR_E_CONTENT, ORIGIN,
                        "the answer is of type '%s', which was not asked for",
                        message->type ? message->type : "");
    if (!bus->opt.contracts)
        return PR_OK;
    return pr_contracts_decode(bus->opt.contracts, message, &reply->decoded, err);
}

static pr_status with_reply_to(const pr_message *request, const char *address,
                               pr_headers **ret_headers, const char **ret_json, pr_error *err)
{
    const pr_header header = {
        .kind = PR_HEADER_TEXT, .name = PR_HEADER_NAME_REPLY_TO, .text = address};
    TRY(pr_headers_parse(request->headers, ret_headers, err));
    TRY(pr_headers_set(*ret_headers, &header, err));
    return pr_headers_json(*ret_headers, ret_json, err);
}

static pr_status check_request(const pr_bus *bus, const char *to, const pr_message *request,
                               const pr_request_options *opt, pr_error *err)
{
    if (!bus)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the bus is NULL");
    if (bus->transport_count == 0)
        return pr__fail(err, PR_E_STATE, ORIGIN, "the bus has no transport: add one first");
    if (pr__text_empty(to))
        return pr__fail(err, PR_E_INVALID, ORIGIN, "`to` is empty: name an endpoint or an address");
    TRY(pr__sized_check(request, sizeof *request, "pr_message", ORIGIN, err));
    TRY(pr__sized_check(opt, sizeof *opt, "pr_request_options", ORIGIN, err));
    if (opt->timeout_ms < 0 || opt->timeout_ms > TIMEOUT_MS_MAX)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "timeout_ms is %lld, must be 0 to %lld",
                        (long long)opt->timeout_ms, TIMEOUT_MS_MAX);
    if (opt->reply_type_count > 0 && !opt->reply_types)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "reply_types is NULL, but its count is %zu",
                        opt->reply_type_count);
    return PR_OK;
}

/* What became of it, once nobody can answer it any more. */
static pr_status conclude(pr_bus *bus, const pr_request_options *opt, const char *to,
                          int64_t timeout_ms, pr__request *waiting, pr_reply **ret_reply,
                          pr_error *err)
{
    pr_reply *reply = waiting->reply;
    if (!reply && atomic_load(&waiting->cancelled))
        return pr__fail(err, PR_E_CANCELLED, ORIGIN, "the bus was stopped before the answer came");
    if (!reply) {
        atomic_fetch_add(&bus->timeouts, 1);
        return pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_UNKNOWN, ORIGIN,
                              "'%s' did not answer within %lld ms; it may have handled the request",
                              to, (long long)timeout_ms);
    }
    atomic_fetch_add(&bus->replies, 1);
    pr_status status = check_reply(bus, opt, reply, err);
    if (status == PR_OK)
        *ret_reply = reply;
    else
        pr_reply_free(reply);
    return status;
}

static int64_t ms_until(int64_t until_us)
{
    int64_t left_us = until_us - pr__monotonic_us();
    return left_us > 0 ? (left_us + 999) / 1000 : 0;
}

pr_status pr_bus_request(pr_bus *bus, const char *to, const pr_message *request,
                         const pr_request_options *opt, pr_reply **ret_reply, pr_error *err)
{
    static const pr_request_options defaults = PR_REQUEST_OPTIONS(.timeout_ms = 0);
    opt = opt ? opt : &defaults;
    if (!ret_reply)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "ret_reply is NULL");
    TRY(check_request(bus, to, request, opt, err));
    int64_t timeout_ms = opt->timeout_ms ? opt->timeout_ms : TIMEOUT_MS_DEFAULT;
    int64_t until_us = pr__monotonic_us() + timeout_ms * 1000;
    char address[PR__ADDRESS_SIZE], reply_to[96];
    AUTO(pr_headers) headers = NULL;
    pr__bus_transport *at = NULL;
    pr__prepared prepared;
    pr__request waiting = {.id = prepared.id};
    pr_message own = *request;
    TRY(pr__bus_address(bus, to, request, address, err));
    TRY(pr__bus_route(bus, address, &at, err));
    own.destination = address;
    /* the id first: whoever answers before we wait is not late */
    TRY(pr__bus_prepare(bus, &own, &prepared, err));
    if (prepared.message.id != prepared.id)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the id of a request must be a UUID, or none");
    TRY(begin(bus, at, &waiting, until_us, err));
    pr__format(reply_to, sizeof reply_to, "%s://reply/%s", at->given->name, at->box.id);
    pr_status status = with_reply_to(request, reply_to, &headers, &prepared.message.headers, err);
    if (status == PR_OK && prepared.message.expires_at_us == 0)
        prepared.message.expires_at_us =
            prepared.message.occurred_at_us + timeout_ms * 1000 + CLOCK_SLACK_US;
    if (status == PR_OK)
        status = pr_message_check(&prepared.message, bus->opt.store->body_size_max, err);
    if (status == PR_OK)
        status =
            pr__bus_submit(bus, at, &prepared.message, ms_until(until_us), &waiting.cancelled, err);
    atomic_fetch_add(&bus->requests, 1);
    await(bus, &waiting, status == PR_OK ? until_us : 0);
    if (status != PR_OK) {
        pr_reply_free(waiting.reply);
        return status;
    }
    return conclude(bus, opt, address, timeout_ms, &waiting, ret_reply, err);
}

/* ---- answers ---- */

const pr_message *pr_reply_message(const pr_reply *reply)
{
    return reply ? reply->message : NULL;
}

const void *pr_reply_object(const pr_reply *reply)
{
    return reply && reply->decoded ? pr_decoded_object(reply->decoded) : NULL;
}

pr_reply *pr_reply_free(pr_reply *reply)
{
    if (!reply)
        return NULL;
    pr_decoded_free(reply->decoded);
    pr_message_free(reply->message);
    pr__free(reply);
    return NULL;
}
