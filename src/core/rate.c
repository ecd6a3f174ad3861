/*
 * The gap between sends.
 *
 * Keeps: two sends of a round are at least 1 / rate apart, rounded up to a microsecond.
 * Must not know: clocks, what is sent.
 */
#include "core/rate.h"

#define GAP_MAX_US (INT64_MAX / 4)

void pr__rate_init(pr__rate *rate, double per_second)
{
    *rate = (pr__rate){.next_at_us = INT64_MIN};
    if (!(per_second > 0.0))
        return;
    double gap = 1e6 / per_second;
    if (gap >= (double)GAP_MAX_US) {
        rate->gap_us = GAP_MAX_US;
        return;
    }
    rate->gap_us = (int64_t)gap;
    if ((double)rate->gap_us < gap)
        rate->gap_us++;
}

void pr__rate_begin(pr__rate *rate)
{
    rate->next_at_us = INT64_MIN;
}

int64_t pr__rate_wait_us(const pr__rate *rate, int64_t now_us)
{
    return rate->gap_us == 0 || now_us >= rate->next_at_us ? 0 : rate->next_at_us - now_us;
}

void pr__rate_sent(pr__rate *rate, int64_t now_us)
{
    if (rate->gap_us > 0)
        rate->next_at_us = now_us > INT64_MAX - rate->gap_us ? INT64_MAX : now_us + rate->gap_us;
}
