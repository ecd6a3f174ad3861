/*
 * The line, with a mutex and a condition for each that waits.
 *
 * Keeps: one has the turn at a time; whoever leaves and comes back at once may pass those that
 * wait, because their waking would cost more than its work, but the first of them no longer than
 * PASS_US: then the turn is handed over. One whose time is up is in line no more.
 * Must not know: SQLite.
 */
#include "store/sqlite/line.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/thread.h"
#include "base/time.h"

#define PASS_US 5000

/* One that waits, on its own stack. */
typedef struct waiter {
    struct waiter *next;
    pthread_cond_t woken;
    int64_t since_us;
    bool handed; /* the turn was given to it */
} waiter;

struct pr__line {
    atomic_uint holds;
    pid_t pid;
    pthread_mutex_t mutex; /* guards what follows */
    bool taken;
    waiter *first, *last;
};

pr__line *pr__line_new(void)
{
    pr__line *line = pr__alloc(sizeof *line);
    if (!line)
        return NULL;
    atomic_init(&line->holds, 1);
    line->pid = getpid();
    pthread_mutex_init(&line->mutex, NULL);
    return line;
}

pr__line *pr__line_hold(pr__line *line)
{
    atomic_fetch_add(&line->holds, 1);
    return line;
}

void *pr__line_release(pr__line *line)
{
    if (!line || atomic_fetch_sub(&line->holds, 1) > 1)
        return NULL;
    if (line->pid == getpid())
        pthread_mutex_destroy(&line->mutex);
    return pr__free(line);
}

static void append(pr__line *line, waiter *mine)
{
    if (line->last)
        line->last->next = mine;
    else
        line->first = mine;
    line->last = mine;
}

static void drop(pr__line *line, const waiter *mine)
{
    waiter *before = NULL;
    waiter **at = &line->first;
    while (*at && *at != mine) {
        before = *at;
        at = &before->next;
    }
    if (!*at)
        return;
    *at = mine->next;
    if (line->last == mine)
        line->last = before;
}

/* Locked. */
static bool wait_in_line(pr__line *line, int64_t now_us, int64_t until_us)
{
    waiter mine = {.since_us = now_us};
    pr__cond_init(&mine.woken);
    append(line, &mine);
    while (!mine.handed && now_us < until_us) {
        if (line->first == &mine && !line->taken)
            break;
        pr__cond_wait_us(&mine.woken, &line->mutex, until_us - now_us);
        now_us = pr__monotonic_us();
    }
    bool mine_now = mine.handed || (line->first == &mine && !line->taken);
    drop(line, &mine);
    /* it was woken for nothing, and its time was up: the next one is to look */
    if (!mine_now && line->first && !line->taken)
        pthread_cond_signal(&line->first->woken);
    if (mine_now)
        line->taken = true;
    pthread_cond_destroy(&mine.woken);
    return mine_now;
}

bool pr__line_enter(pr__line *line, int64_t until_us)
{
    bool entered = true;
    pthread_mutex_lock(&line->mutex);
    if (!line->taken && !line->first) {
        line->taken = true;
    } else {
        int64_t now_us = pr__monotonic_us();
        if (!line->taken && now_us - line->first->since_us < PASS_US)
            line->taken = true;
        else
            entered = wait_in_line(line, now_us, until_us);
    }
    pthread_mutex_unlock(&line->mutex);
    return entered;
}

void pr__line_leave(pr__line *line)
{
    if (line->pid != getpid())
        return;
    pthread_mutex_lock(&line->mutex);
    waiter *first = line->first;
    line->taken = false;
    if (first) {
        first->handed = pr__monotonic_us() - first->since_us >= PASS_US;
        line->taken = first->handed;
        if (first->handed)
            drop(line, first);
        pthread_cond_signal(&first->woken);
    }
    pthread_mutex_unlock(&line->mutex);
}
