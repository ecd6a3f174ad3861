/*
 * Waits that double, for messages, rounds and pauses.
 *
 * Keeps: the result lies within the jitter around a value <= max_ms, whatever the count.
 * Must not know: clocks, what failed.
 */
#include "core/backoff.h"

int64_t pr__backoff_ms(const pr__backoff *backoff, uint32_t failures, uint32_t random)
{
    if (failures == 0)
        return 0;
    int64_t wait = backoff->initial_ms;
    for (uint32_t i = 1; i < failures && wait < backoff->max_ms; i++)
        wait = wait > INT64_MAX / 2 ? INT64_MAX : wait * 2;
    if (wait > backoff->max_ms)
        wait = backoff->max_ms;
    uint32_t percent = backoff->jitter_percent > 100 ? 100 : backoff->jitter_percent;
    if (percent == 0)
        return wait;
    /* a double is exact enough: the jitter is random anyway */
    double share = (double)random / (double)UINT32_MAX * 2.0 - 1.0;
    double jittered = (double)wait * (1.0 + share * (double)percent / 100.0);
    if (jittered >= 9.0e18)
        return INT64_MAX;
    return jittered > 0.0 ? (int64_t)jittered : 0;
}

bool pr__backoff_exhausted(uint32_t attempts, uint32_t retry_max)
{
    return attempts > retry_max;
}
