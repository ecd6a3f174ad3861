/*
 * What a settle makes of an item: whether it is kept, how it stands parked, how it is counted.
 */
#ifndef PR_PORT_PARK_H
#define PR_PORT_PARK_H

#include <stdbool.h>
#include <stdint.h>

#include "port/batch.h"
#include "port/store.h"

/* How an item that is not passed on stands parked. */
typedef struct pr__park {
    const char *state;
    int64_t attempts;
    bool deferred;
    bool failed; /* it counts as the first failure when there was none */
    int64_t next_attempt_at;
    const char *error;
} pr__park;

/* Does the item go to rest (a parked one: back to what it was, or failed uncharged)? */
bool pr__result_kept(pr__result result);

/* Count one item that was settled, or all of a slice. */
void pr__settle_report_count(pr__settle_report *report, pr__result result);
void pr__settle_report_count_slice(pr__settle_report *report, const pr__batch *batch,
                                   uint32_t slice);
/* Somebody took the slice over: mark it and its items. report may be NULL. */
void pr__slice_fence(pr__batch *batch, uint32_t slice, pr__settle_report *report);

/* With now = 0, next_attempt_at is the delay in microseconds. */
pr__park pr__park_of(const pr__item *item, int64_t now);

#endif
