/*
 * Named fault points, in test builds only.
 *
 * Owns: the table of points that were passed, their counters, and the orders for them.
 * Keeps: without orders and without a trace a point costs one atomic load; the lock is never held
 * while a point sleeps, stops or kills.
 * Must not know: what any point stands for.
 */
#include "base/fault.h"

#ifdef PR_FAULT_POINTS

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "base/time.h"

#define NAMES_MAX     128 /* further names are not counted, and no order reaches them */
#define NAME_SIZE     64
#define ORDERS_MAX    16
#define SPEC_SIZE     1024
#define DELAY_DEFAULT 100

typedef enum fault_action {
    FAULT_NONE,
    FAULT_KILL,
    FAULT_PAUSE,
    FAULT_DELAY,
    FAULT_FAIL
} fault_action;

typedef struct fault_order {
    char name[NAME_SIZE];
    int64_t hit; /* 0 = every */
    fault_action action;
    int64_t ms;
} fault_order;

typedef struct fault_count {
    char name[NAME_SIZE];
    int64_t hits;
} fault_count;

enum { MODE_UNKNOWN, MODE_OFF, MODE_ON };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int mode = MODE_UNKNOWN;
static fault_order orders[ORDERS_MAX];
static size_t order_count;
static fault_count counts[NAMES_MAX];
static size_t count_count;
static char trace_path[512];

static bool parse_action(const char *text, fault_action *ret_action)
{
    static const char *const names[] = {"", "kill", "pause", "delay", "fail"};
    for (size_t i = 1; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(text, names[i]) == 0) {
            *ret_action = (fault_action)i;
            return true;
        }
    }
    return false;
}

/* One "name:hit:action[:milliseconds]". A test that orders nonsense must not pass by doing nothing.
 */
static void parse_order(char *text)
{
    char *rest = text;
    char *name = strsep(&rest, ":");
    char *hit = strsep(&rest, ":");
    char *action = strsep(&rest, ":");
    fault_order order = {.ms = DELAY_DEFAULT};
    if (order_count == ORDERS_MAX || strlen(name) >= NAME_SIZE || !hit || !action ||
        !pr__parse_int64(hit, 0, INT64_MAX, &order.hit) || !parse_action(action, &order.action) ||
        (rest && !pr__parse_int64(rest, 0, 3600000, &order.ms))) {
        fprintf(stderr, "postroom: POSTROOM_FAULT has a bad order for point '%s'\n", name);
        abort();
    }
    memcpy(order.name, name, strlen(name) + 1);
    orders[order_count++] = order;
}

static void load_spec(const char *spec)
{
    char copy[SPEC_SIZE];
    order_count = 0;
    count_count = 0;
    memset(counts, 0, sizeof(counts));
    if (!pr__text_empty(spec)) {
        pr__format(copy, sizeof(copy), "%s", spec);
        char *rest = copy;
        char *order;
        while ((order = strsep(&rest, ",")) != NULL)
            parse_order(order);
    }
    const char *trace = getenv("POSTROOM_FAULT_TRACE");
    pr__format(trace_path, sizeof(trace_path), "%s", trace ? trace : "");
    atomic_store(&mode, order_count > 0 || trace_path[0] != '\0' ? MODE_ON : MODE_OFF);
}

void pr__fault_reset(const char *spec)
{
    pthread_mutex_lock(&lock);
    load_spec(spec);
    pthread_mutex_unlock(&lock);
}

/* The number of this hit, from 1; 0 when the table is full. */
static int64_t count_hit(const char *name)
{
    for (size_t i = 0; i < count_count; i++) {
        if (strcmp(counts[i].name, name) == 0)
            return ++counts[i].hits;
    }
    if (count_count == NAMES_MAX || strlen(name) >= NAME_SIZE)
        return 0;
    memcpy(counts[count_count].name, name, strlen(name) + 1);
    counts[count_count].hits = 1;
    count_count++;
    return 1;
}

static void trace_hit(const char *name, int64_t hit)
{
    char line[NAME_SIZE + 32];
    int fd = open(trace_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    pr__format(line, sizeof(line), "%s %lld\n", name, (long long)hit);
    ssize_t written = write(fd, line, strlen(line)); /* one write: lines of processes do not mix */
    (void)written;
    close(fd);
}

static bool act(fault_action action, int64_t ms)
{
    switch (action) {
    case FAULT_NONE:
        return false;
    case FAULT_KILL:
        raise(SIGKILL);
        return false;
    case FAULT_PAUSE:
        raise(SIGSTOP);
        return false;
    case FAULT_DELAY:
        pr__sleep_us(ms * 1000);
        return false;
    case FAULT_FAIL:
        return true;
    }
    return false;
}

bool pr__fault_hit(const char *name)
{
    if (atomic_load_explicit(&mode, memory_order_acquire) == MODE_OFF)
        return false;
    fault_action action = FAULT_NONE;
    int64_t ms = 0;
    pthread_mutex_lock(&lock);
    if (atomic_load(&mode) == MODE_UNKNOWN)
        load_spec(getenv("POSTROOM_FAULT"));
    if (atomic_load(&mode) == MODE_ON) {
        int64_t hit = count_hit(name);
        if (trace_path[0] != '\0')
            trace_hit(name, hit);
        for (size_t i = 0; i < order_count; i++) {
            bool due = hit > 0 && (orders[i].hit == 0 || orders[i].hit == hit);
            if (due && strcmp(orders[i].name, name) == 0) {
                action = orders[i].action;
                ms = orders[i].ms;
                break;
            }
        }
    }
    pthread_mutex_unlock(&lock);
    return act(action, ms);
}

#endif /* PR_FAULT_POINTS */

typedef int pr__fault_unit_is_never_empty; /* ISO C wants a declaration in every unit */
