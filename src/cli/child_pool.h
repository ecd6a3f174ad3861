/*
 * Commands that run for long, as many as there are workers; each is one worker's at a time.
 */
#ifndef PR_CLI_CHILD_POOL_H
#define PR_CLI_CHILD_POOL_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/error.h>

#include "cli/child.h"

typedef struct pr__child_pool {
    pthread_mutex_t mutex;
    pr__child *children;
    pr__child **free; /* those that nobody has taken */
    size_t count;     /* 0 = there is no pool */
    size_t free_count;
} pr__child_pool;

/* None of them is started. NOMEM. */
pr_status pr__child_pool_init(pr__child_pool *pool, size_t count, pr_error *err);

/* End them all: their input ends, after wait_ms SIGTERM, after kill_after_ms SIGKILL. */
void pr__child_pool_done(pr__child_pool *pool, int64_t wait_ms, int64_t kill_after_ms);

/* One for the caller alone; its pid is 0 when it does not run. At most `count` are taken at once.
   Any thread. */
pr__child *pr__child_pool_take(pr__child_pool *pool);
void pr__child_pool_give(pr__child_pool *pool, pr__child *child);

#endif
