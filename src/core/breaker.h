/*
 * Circuit breakers, one per destination that fails while others are served.
 *
 * closed → open after so many losses in a row; open → half-open when its time is over: one message
 * is let through as a probe; half-open → closed when the probe was answered, → open, for twice as
 * long, when it was lost. A destination without a recent loss has no entry.
 */
#ifndef PR_CORE_BREAKER_H
#define PR_CORE_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"

#define PR__BREAKERS_MAX 256 /* destinations that are watched at once; further ones are not */

typedef enum pr__breaker_verdict {
    PR__BREAKER_PASS = 1,
    PR__BREAKER_PROBE, /* send this one, and no other until its end was told */
    PR__BREAKER_REFUSE
} pr__breaker_verdict;

typedef enum pr__breaker_state {
    PR__BREAKER_CLOSED = 1,
    PR__BREAKER_OPEN,
    PR__BREAKER_HALF_OPEN
} pr__breaker_state;

typedef struct pr__breakers pr__breakers;

pr__breakers *pr__breakers_new(uint32_t losses_max, int64_t open_ms, int64_t open_max_ms);
void *pr__breakers_free(pr__breakers *breakers); /* accepts NULL, returns NULL */

/* May a message for this destination be sent? REFUSE: *ret_wait_us says how long to wait. */
pr__breaker_verdict pr__breakers_ask(pr__breakers *breakers, const char *destination,
                                     int64_t now_us, int64_t *ret_wait_us);
/* The destination answered, whatever it said. True when this closed an open breaker. */
bool pr__breakers_answered(pr__breakers *breakers, const char *destination);
/* A message for it was lost though its transport is up. It opens only when, during the losses in a
   row, other destinations were served (after the lost one was sent): else it is an outage of
   everything, which parks nothing. True when this opened it. */
bool pr__breakers_lost(pr__breakers *breakers, const char *destination, bool others_served,
                       int64_t now_us);
/* The probe was not sent after all, or what became of it says nothing about the destination. */
void pr__breakers_unprobe(pr__breakers *breakers, const char *destination);
/* Forget what nobody asked for since before_us. */
void pr__breakers_prune(pr__breakers *breakers, int64_t before_us);

pr__breaker_state pr__breakers_state(const pr__breakers *breakers, const char *destination);
uint32_t pr__breakers_open_count(const pr__breakers *breakers); /* open or half-open */

#endif
