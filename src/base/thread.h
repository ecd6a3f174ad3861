/*
 * Threads of ours inside a host's process.
 */
#ifndef PR_BASE_THREAD_H
#define PR_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Start a thread that gets none of the host's signals. False: the system has none left. */
bool pr__thread_start(pthread_t *ret_thread, void *(*run)(void *user), void *user);

/* A condition that waits by the monotonic clock. */
void pr__cond_init(pthread_cond_t *cond);
/* Wait until it is signalled or so much time has passed; may wake for nothing. */
void pr__cond_wait_us(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t wait_us);

#endif
