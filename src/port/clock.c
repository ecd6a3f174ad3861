/*
 * The clock of the host, as the clock port hands it out.
 */
#include <postroom/clock.h>

#include "base/time.h"

static int64_t system_wall_us(void *user)
{
    (void)user;
    return pr__wall_us();
}

static int64_t system_monotonic_us(void *user)
{
    (void)user;
    return pr__monotonic_us();
}

static const pr_clock system_clock = {
    .size = (uint32_t)sizeof(pr_clock),
    .wall_us = system_wall_us,
    .monotonic_us = system_monotonic_us,
    .user = NULL,
};

const pr_clock *pr_clock_system(void)
{
    return &system_clock;
}
