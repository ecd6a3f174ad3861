/*
 * The pool of commands.
 *
 * Keeps: one that runs is taken before one that would have to be started, so that no more run than
 * are needed at once.
 * Must not know: what is said to them.
 */
#include "cli/child_pool.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/memory.h"

#define ORIGIN "cli.child"

pr_status pr__child_pool_init(pr__child_pool *pool, size_t count, pr_error *err)
{
    pthread_mutex_init(&pool->mutex, NULL);
    pool->children = pr__alloc_array(count, sizeof(*pool->children));
    pool->free = pr__alloc_array(count, sizeof(pr__child *));
    if (!pool->children || !pool->free) {
        pool->children = pr__free(pool->children);
        pool->free = pr__free(pool->free);
        return pr__fail_nomem(err, ORIGIN);
    }
    for (size_t i = 0; i < count; i++)
        pool->free[i] = &pool->children[i];
    pool->count = pool->free_count = count;
    return PR_OK;
}

void pr__child_pool_done(pr__child_pool *pool, int64_t wait_ms, int64_t kill_after_ms)
{
    if (pool->count == 0)
        return;
    pr__child_stop_all(pool->free, pool->free_count, wait_ms, kill_after_ms);
    pool->children = pr__free(pool->children);
    pool->free = pr__free(pool->free);
    pool->count = pool->free_count = 0;
    pthread_mutex_destroy(&pool->mutex);
}

pr__child *pr__child_pool_take(pr__child_pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    pr_assert(pool->free_count > 0);
    size_t at = pool->free_count - 1;
    while (at > 0 && pool->free[at]->pid == 0)
        at--;
    pr__child *child = pool->free[at];
    pool->free[at] = pool->free[--pool->free_count];
    pthread_mutex_unlock(&pool->mutex);
    return child;
}

void pr__child_pool_give(pr__child_pool *pool, pr__child *child)
{
    pthread_mutex_lock(&pool->mutex);
    pool->free[pool->free_count++] = child;
    pthread_mutex_unlock(&pool->mutex);
}
