/*
 * Rate: the gap between sends of one round. Nothing is owed from one round to the next, and nothing
 * is saved up.
 */
#ifndef PR_CORE_RATE_H
#define PR_CORE_RATE_H

#include <stdint.h>

typedef struct pr__rate {
    int64_t gap_us;     /* between two sends; 0 = off */
    int64_t next_at_us; /* on the caller's monotonic clock */
} pr__rate;

void pr__rate_init(pr__rate *rate, double per_second); /* 0 = off; finite, not negative */
void pr__rate_begin(pr__rate *rate);                   /* a new round: the first may go at once */
int64_t pr__rate_wait_us(const pr__rate *rate, int64_t now_us); /* 0 = one may go now */
void pr__rate_sent(pr__rate *rate, int64_t now_us);

#endif
