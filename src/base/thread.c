/*
 * Threads of ours inside a host's process.
 *
 * Keeps: signals stay with the host's threads, so that its handlers run where it expects them;
 * waits go by the monotonic clock.
 * Must not know: what the threads are for.
 */
#include "base/thread.h"

#include <signal.h>
#include <time.h>

#include "base/time.h"

bool pr__thread_start(pthread_t *ret_thread, void *(*run)(void *user), void *user)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(ret_thread, NULL, run, user) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

void pr__cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

void pr__cond_wait_us(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t wait_us)
{
    int64_t until_us = pr__monotonic_us() + wait_us;
    struct timespec until = {.tv_sec = (time_t)(until_us / 1000000),
                             .tv_nsec = (long)(until_us % 1000000) * 1000};
    pthread_cond_timedwait(cond, mutex, &until);
}
