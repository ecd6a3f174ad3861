/*
 * A crew of threads that begin at the same moment, and the time until the last of them is done.
 */
#ifndef PR_BENCH_CREW_H
#define PR_BENCH_CREW_H

#include <stddef.h>

#define BENCH_CREW_MAX 16

/* Run work(items + i * item_size) in count threads; seconds. */
double bench_crew_run(void (*work)(void *item), void *items, size_t item_size, int count);

#endif
