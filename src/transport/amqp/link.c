/*
 * The thread of a connection.
 *
 * Owns: connecting, waiting for the socket, heartbeats, frames of channel 0, reconnecting, the end.
 * Keeps: librabbitmq is called on this thread alone; each loop gives its memory back; while it is
 * up the thread never sleeps longer than half a heartbeat. The cause of a failure stays in the
 * state until the connection is up again.
 * Must not know: what is published or consumed.
 */
#include "transport/amqp/link.h"

#include <amqp_framing.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <postroom/random.h>

#include "base/error.h"
#include "base/text.h"
#include "base/thread.h"
#include "base/time.h"

#define ORIGIN         "amqp.link"
#define WAIT_MAX_MS    1000
#define FRAMES_AT_ONCE 512      /* then callers are looked after again */
#define SETTLED_US     10000000 /* up for so long: a failure is a first one */

/* ---- state ---- */

void pr__amqp_link_state_set(pr__amqp_link *link, pr_transport_state_kind kind, const char *cause)
{
    link->kind = kind;
    pr__format(link->cause, sizeof(link->cause), "%s", cause);
    pthread_cond_broadcast(&link->changed);
}

void pr__amqp_link_wake(pr__amqp_link *link)
{
    static const uint64_t one = 1;
    if (link->woken)
        return;
    link->woken = true;
    while (write(link->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        continue;
}

bool pr__amqp_link_wait(pr__amqp_link *link, int64_t until_us)
{
    if (pr__monotonic_us() >= until_us)
        return false;
    struct timespec until = {.tv_sec = (time_t)(until_us / 1000000),
                             .tv_nsec = (long)(until_us % 1000000) * 1000};
    pthread_cond_timedwait(&link->changed, &link->lock, &until);
    return true;
}

static void failed(pr__amqp_link *link, const pr_error *why)
{
    pthread_mutex_lock(&link->lock);
    link->failed_count++;
    link->last_error = *why;
    pr__amqp_link_state_set(link, PR_TRANSPORT_DOWN, why->message);
    pthread_mutex_unlock(&link->lock);
}

pr_status pr__amqp_link_wait_up(pr__amqp_link *link, int64_t timeout_ms, pr_error *err)
{
    int64_t until_us =
        pr__monotonic_us() + (timeout_ms < INT32_MAX ? timeout_ms : INT32_MAX) * 1000;
    pr_status status = PR_OK;
    pthread_mutex_lock(&link->lock);
    uint64_t before = link->failed_count;
    while (link->kind == PR_TRANSPORT_DOWN && !link->over && link->failed_count == before) {
        if (!pr__amqp_link_wait(link, until_us))
            break;
    }
    if (link->kind == PR_TRANSPORT_BLOCKED) {
        status = pr__fail_retry(err, PR_E_BUSY, PR_RETRY_SAME, ORIGIN, "%s", link->cause);
    } else if (link->kind == PR_TRANSPORT_DOWN && link->failed_count > 0) {
        pr__error_copy(err, &link->last_error);
        status = link->last_error.status;
    } else if (link->kind == PR_TRANSPORT_DOWN) {
        status = pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_RECONNECT, ORIGIN,
                                "connecting to %s takes longer than %lld ms",
                                link->settings->uris->items[0].host, (long long)timeout_ms);
    }
    pthread_mutex_unlock(&link->lock);
    return status;
}

/* ---- backoff ---- */

/* xorshift: jitter needs no better, and core's random port is for the host's seed. */
static uint64_t next_random(pr__amqp_link *link)
{
    link->random ^= link->random << 13;
    link->random ^= link->random >> 7;
    link->random ^= link->random << 17;
    return link->random;
}

int64_t pr__amqp_link_backoff_ms(pr__amqp_link *link, uint32_t failures)
{
    int64_t wait_ms = link->settings->reconnect_initial_ms;
    for (uint32_t i = 1; i < failures && wait_ms < link->settings->reconnect_max_ms; i++)
        wait_ms *= 2;
    if (wait_ms > link->settings->reconnect_max_ms)
        wait_ms = link->settings->reconnect_max_ms;
    return wait_ms - (int64_t)(next_random(link) % (uint64_t)(wait_ms / 4 + 1));
}

/* Sleep before the next attempt; false: stop. */
static bool back_off(pr__amqp_link *link)
{
    if (link->failures < UINT32_MAX)
        link->failures++;
    int64_t until_us = pr__monotonic_us() + pr__amqp_link_backoff_ms(link, link->failures) * 1000;
    pthread_mutex_lock(&link->lock);
    while (!link->stop && pr__amqp_link_wait(link, until_us))
        continue;
    bool go_on = !link->stop;
    pthread_mutex_unlock(&link->lock);
    return go_on;
}

/* ---- frames ---- */

static void blocked(pr__amqp_link *link, const amqp_connection_blocked_t *method,
                    const pr__amqp_connection *connection)
{
    char cause[512];
    pr__format(cause, sizeof(cause), "blocked by the broker at %s: %.*s", connection->peer,
               method->reason.len < 200 ? (int)method->reason.len : 200,
               method->reason.bytes ? (const char *)method->reason.bytes : "");
    PR__AMQP_COUNT(link->settings, blocks);
    pthread_mutex_lock(&link->lock);
    pr__amqp_link_state_set(link, PR_TRANSPORT_BLOCKED, cause);
    pthread_mutex_unlock(&link->lock);
}

static pr_status connection_frame(pr__amqp_link *link, pr__amqp_connection *connection,
                                  const amqp_frame_t *frame, pr_error *err)
{
    if (frame->frame_type != AMQP_FRAME_METHOD)
        return PR_OK; /* a heartbeat */
    if (frame->payload.method.id == AMQP_CONNECTION_BLOCKED_METHOD) {
        blocked(link, frame->payload.method.decoded, connection);
    } else if (frame->payload.method.id == AMQP_CONNECTION_UNBLOCKED_METHOD) {
        pthread_mutex_lock(&link->lock);
        pr__amqp_link_state_set(link, PR_TRANSPORT_UP, "");
        pthread_mutex_unlock(&link->lock);
    } else if (frame->payload.method.id == AMQP_CONNECTION_CLOSE_METHOD) {
        const amqp_connection_close_t *close = frame->payload.method.decoded;
        amqp_connection_close_ok_t answer = {.dummy = 0};
        amqp_send_method(connection->state, 0, AMQP_CONNECTION_CLOSE_OK_METHOD, &answer);
        connection->broken = true;
        pr_error local = PR_ERROR_INIT;
        pr_status ignored = pr__amqp_closed(connection, "the broker closed the connection",
                                            close->reply_code, close->reply_text, &local);
        (void)ignored;
        local.status = PR_E_BACKEND;
        local.retry = PR_RETRY_RECONNECT;
        pr__error_copy(err, &local);
        return PR_E_BACKEND;
    }
    return PR_OK;
}

/* Read all that is there, up to a bound. */
static pr_status read_frames(pr__amqp_link *link, pr__amqp_connection *connection, pr_error *err)
{
    struct timeval at_once = {0, 0};
    for (int i = 0; i < FRAMES_AT_ONCE; i++) {
        amqp_frame_t frame;
        int status = amqp_simple_wait_frame_noblock(connection->state, &frame, &at_once);
        if (status == AMQP_STATUS_TIMEOUT)
            break;
        TRY(pr__amqp_check_status(connection, status, "read", err));
        if (frame.channel == 0)
            TRY(connection_frame(link, connection, &frame, err));
        else
            TRY(link->ops->frame(link->user, connection, &frame, err));
    }
    return PR_OK;
}

/* ---- serving ---- */

static int64_t wait_of(const pr__amqp_connection *connection)
{
    int64_t wait_ms = (int64_t)connection->heartbeat_s * 500;
    return wait_ms > 0 && wait_ms < WAIT_MAX_MS ? wait_ms : WAIT_MAX_MS;
}

static void take_wake(pr__amqp_link *link, bool readable)
{
    uint64_t count;
    if (!readable)
        return;
    pthread_mutex_lock(&link->lock);
    link->woken = false;
    if (read(link->wake_fd, &count, sizeof(count)) < 0)
        count = 0; /* somebody's interrupt: the next round reads it */
    pthread_mutex_unlock(&link->lock);
}

static bool should_stop(pr__amqp_link *link)
{
    pthread_mutex_lock(&link->lock);
    bool stop = link->stop;
    pthread_mutex_unlock(&link->lock);
    return stop;
}

/* Until the connection fails, or (OK) a stop is asked for. */
static pr_status serve(pr__amqp_link *link, pr__amqp_connection *connection, pr_error *err)
{
    bool writable = true;
    int64_t began_us = pr__monotonic_us();
    while (!should_stop(link)) {
        bool want_write = false;
        int64_t wait_ms = wait_of(connection);
        TRY(link->ops->work(link->user, connection, writable, &want_write, &wait_ms, err));
        if (amqp_frames_enqueued(connection->state) || amqp_data_in_buffer(connection->state))
            wait_ms = 0;
        struct pollfd fds[] = {
            {.fd = connection->fd, .events = (short)(want_write ? POLLIN | POLLOUT : POLLIN)},
            {.fd = link->wake_fd, .events = POLLIN}};
        if (poll(fds, 2, (int)wait_ms) < 0 && errno != EINTR)
            return pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_RECONNECT, ORIGIN,
                                  "waiting for the socket: errno %d", errno);
        writable = (fds[0].revents & POLLOUT) != 0;
        take_wake(link, (fds[1].revents & POLLIN) != 0);
        pr_status status = read_frames(link, connection, err);
        link->ops->flush(link->user);
        if (status != PR_OK)
            return status;
        amqp_maybe_release_buffers(connection->state);
        if (link->failures > 0 && pr__monotonic_us() - began_us > SETTLED_US)
            pr__amqp_link_served(link);
    }
    return PR_OK;
}

static pr_status set_up(pr__amqp_link *link, pr__amqp_connection *connection, pr_error *err)
{
    pr__watchdog_arm(link->settings->watchdog, &link->guard,
                     pr__monotonic_us() + link->settings->publish_deadline_ms * 1000);
    pr_status status = link->ops->setup(link->user, connection, err);
    bool late = pr__watchdog_disarm(link->settings->watchdog, &link->guard);
    if (status == PR_OK && late)
        status = pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_RECONNECT, ORIGIN,
                                "%s takes too long to answer", connection->peer);
    if (status != PR_OK)
        return status;
    pthread_mutex_lock(&link->lock);
    pr__amqp_link_state_set(link, PR_TRANSPORT_UP, "");
    pthread_mutex_unlock(&link->lock);
    return PR_OK;
}

/* One connection from its birth to its end; false: the link is over. */
static bool live_once(pr__amqp_link *link)
{
    pr__amqp_connection connection = {.state = NULL};
    pr_error err = PR_ERROR_INIT;
    bool was_up = false;
    pr_status status =
        pr__amqp_connect(link->settings, link->role, &link->guard, &link->turn, &connection, &err);
    if (status == PR_OK) {
        status = set_up(link, &connection, &err);
        was_up = status == PR_OK;
        if (was_up)
            status = serve(link, &connection, &err);
        if (status != PR_OK)
            PR__AMQP_COUNT(link->settings, failures);
    }
    bool orderly = status == PR_OK;
    if (!orderly)
        failed(link, &err);
    link->ops->down(link->user, &connection, orderly ? NULL : &err);
    link->ops->flush(link->user);
    pr__amqp_disconnect(&connection);
    if (!orderly && !was_up)
        link->turn++;
    pthread_mutex_lock(&link->lock);
    bool go_on = !link->stop && !link->over;
    pthread_mutex_unlock(&link->lock);
    return go_on;
}

static void *run(void *user)
{
    pr__amqp_link *link = user;
    while (live_once(link) && back_off(link))
        continue;
    return NULL;
}

/* ---- life ---- */

pr_status pr__amqp_link_init(pr__amqp_link *link, pr__amqp_settings *settings,
                             const pr__amqp_link_ops *ops, void *user, const char *role,
                             pr_error *err)
{
    *link = (pr__amqp_link){.settings = settings,
                            .ops = ops,
                            .user = user,
                            .role = role,
                            .guard = {.fd = -1},
                            .kind = PR_TRANSPORT_DOWN,
                            .last_error = PR_ERROR_INIT};
    pr_random_system()->fill(pr_random_system()->user, &link->random, sizeof(link->random));
    link->random |= 1; /* zero would stay zero */
    pr__format(link->cause, sizeof(link->cause), "it was not opened yet");
    link->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (link->wake_fd < 0)
        return pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_SAME, ORIGIN,
                              "no descriptor is left: errno %d", errno);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&link->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&link->lock, NULL);
    return PR_OK;
}

pr_status pr__amqp_link_start(pr__amqp_link *link, pr_error *err)
{
    if (link->started)
        return PR_OK;
    if (!pr__thread_start(&link->thread, run, link))
        return pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_SAME, ORIGIN, "no thread can be started");
    link->started = true;
    return PR_OK;
}

void pr__amqp_link_done(pr__amqp_link *link)
{
    if (link->started) {
        pthread_mutex_lock(&link->lock);
        link->stop = true;
        pr__amqp_link_wake(link);
        pthread_cond_broadcast(&link->changed);
        pthread_mutex_unlock(&link->lock);
        pr__watchdog_stop_by(link->settings->watchdog, &link->guard,
                             pr__monotonic_us() + link->settings->close_timeout_ms * 1000);
        pthread_join(link->thread, NULL);
    }
    close(link->wake_fd);
    pthread_cond_destroy(&link->changed);
    pthread_mutex_destroy(&link->lock);
}
