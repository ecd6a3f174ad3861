/*
 * Backoff: how long to wait after the n-th failure in a row. Pure: randomness is a parameter.
 */
#ifndef PR_CORE_BACKOFF_H
#define PR_CORE_BACKOFF_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pr__backoff {
    int64_t initial_ms;      /* after the first failure; > 0 */
    int64_t max_ms;          /* the wait never grows beyond it, but for the jitter */
    uint32_t jitter_percent; /* 0 = none; at most 100 */
} pr__backoff;

/* min(max, initial * 2^(failures - 1)), plus or minus the jitter; 0 failures: 0. `random` is any 32
   bits, spread evenly over the jitter's range. Never negative, no overflow at any count. */
int64_t pr__backoff_ms(const pr__backoff *backoff, uint32_t failures, uint32_t random);

/* Is a message dead after this many charged attempts? N retries are N + 1 attempts. */
bool pr__backoff_exhausted(uint32_t attempts, uint32_t retry_max);

#endif
