/*
 * The watchdog.
 *
 * Owns: the deadlines of all connections of a transport, one thread.
 * Keeps: a descriptor is shut down only while its owner has it open: guards are set and unset under
 * the same lock. Arming costs no wake-up as long as deadlines come in their order.
 * Must not know: what is done on the socket.
 */
#include "transport/amqp/watchdog.h"

#include <pthread.h>
#include <sys/socket.h>
#include <time.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "base/time.h"

#define ORIGIN "amqp.watchdog"

struct pr__watchdog {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t earlier; /* a deadline before wakes_at_us, or the end */
    pr__guard *guards;      /* those with a socket */
    int64_t wakes_at_us;
    bool stop;
};

static void wait_until(pr__watchdog *watchdog, int64_t until_us)
{
    watchdog->wakes_at_us = until_us;
    if (until_us == INT64_MAX) {
        pthread_cond_wait(&watchdog->earlier, &watchdog->lock);
        return;
    }
    struct timespec until = {.tv_sec = (time_t)(until_us / 1000000),
                             .tv_nsec = (long)(until_us % 1000000) * 1000};
    pthread_cond_timedwait(&watchdog->earlier, &watchdog->lock, &until);
}

static void shut_down(pr__guard *guard)
{
    guard->fired = true;
    guard->deadline_us = 0;
    guard->stop_us = 0;
    if (guard->fd >= 0)
        shutdown(guard->fd, SHUT_RDWR);
}

static int64_t due_of(const pr__guard *guard)
{
    int64_t due = guard->deadline_us ? guard->deadline_us : INT64_MAX;
    return guard->stop_us && guard->stop_us < due ? guard->stop_us : due;
}

static void *run(void *user)
{
    pr__watchdog *watchdog = user;
    pthread_mutex_lock(&watchdog->lock);
    while (!watchdog->stop) {
        int64_t next_us = INT64_MAX;
        int64_t now_us = pr__monotonic_us();
        for (pr__guard *guard = watchdog->guards; guard; guard = guard->next) {
            int64_t due_us = due_of(guard);
            if (due_us <= now_us)
                shut_down(guard);
            else if (due_us < next_us)
                next_us = due_us;
        }
        wait_until(watchdog, next_us);
    }
    pthread_mutex_unlock(&watchdog->lock);
    return NULL;
}

pr_status pr__watchdog_new(pr__watchdog **ret_watchdog, pr_error *err)
{
    pr__watchdog *watchdog = pr__alloc(sizeof(*watchdog));
    if (!watchdog)
        return pr__fail_nomem(err, ORIGIN);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&watchdog->earlier, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&watchdog->lock, NULL);
    watchdog->wakes_at_us = INT64_MAX;
    if (!pr__thread_start(&watchdog->thread, run, watchdog)) {
        pthread_cond_destroy(&watchdog->earlier);
        pthread_mutex_destroy(&watchdog->lock);
        pr__free(watchdog);
        return pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_SAME, ORIGIN, "no thread can be started");
    }
    *ret_watchdog = watchdog;
    return PR_OK;
}

void *pr__watchdog_free(pr__watchdog *watchdog)
{
    if (!watchdog)
        return NULL;
    pthread_mutex_lock(&watchdog->lock);
    watchdog->stop = true;
    pthread_cond_signal(&watchdog->earlier);
    pthread_mutex_unlock(&watchdog->lock);
    pthread_join(watchdog->thread, NULL);
    pthread_cond_destroy(&watchdog->earlier);
    pthread_mutex_destroy(&watchdog->lock);
    return pr__free(watchdog);
}

static void wake_if_earlier(pr__watchdog *watchdog, const pr__guard *guard)
{
    if (due_of(guard) < watchdog->wakes_at_us)
        pthread_cond_signal(&watchdog->earlier);
}

void pr__watchdog_set(pr__watchdog *watchdog, pr__guard *guard, int fd)
{
    pthread_mutex_lock(&watchdog->lock);
    pr__guard **at = &watchdog->guards;
    while (*at && *at != guard)
        at = &(*at)->next;
    if (*at)
        *at = guard->next;
    guard->next = NULL;
    guard->fd = fd;
    guard->deadline_us = 0;
    if (fd >= 0) {
        guard->fired = false;
        guard->next = watchdog->guards;
        watchdog->guards = guard;
        wake_if_earlier(watchdog, guard);
    }
    pthread_mutex_unlock(&watchdog->lock);
}

void pr__watchdog_arm(pr__watchdog *watchdog, pr__guard *guard, int64_t deadline_us)
{
    pthread_mutex_lock(&watchdog->lock);
    guard->deadline_us = deadline_us;
    wake_if_earlier(watchdog, guard);
    pthread_mutex_unlock(&watchdog->lock);
}

bool pr__watchdog_disarm(pr__watchdog *watchdog, pr__guard *guard)
{
    pthread_mutex_lock(&watchdog->lock);
    guard->deadline_us = 0;
    bool fired = guard->fired;
    pthread_mutex_unlock(&watchdog->lock);
    return fired;
}

void pr__watchdog_stop_by(pr__watchdog *watchdog, pr__guard *guard, int64_t stop_us)
{
    pthread_mutex_lock(&watchdog->lock);
    guard->stop_us = stop_us;
    wake_if_earlier(watchdog, guard);
    pthread_mutex_unlock(&watchdog->lock);
}

void pr__watchdog_cut(pr__watchdog *watchdog, pr__guard *guard)
{
    pthread_mutex_lock(&watchdog->lock);
    if (guard->fd >= 0)
        shutdown(guard->fd, SHUT_RDWR);
    pthread_mutex_unlock(&watchdog->lock);
}
