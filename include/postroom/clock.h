/*
 * The clock port. Host clocks never matter to safety: leases are judged by the database's clock,
 * and how long a holder may still send is counted on the monotonic one.
 */
#ifndef POSTROOM_CLOCK_H
#define POSTROOM_CLOCK_H

#include <stdint.h>

#include <postroom/export.h>

typedef struct pr_clock {
    uint32_t size;
    int64_t (*wall_us)(void *user);      /* microseconds since 1970, UTC */
    int64_t (*monotonic_us)(void *user); /* never goes back; any origin */
    void *user;
} pr_clock;

PR_BEGIN_DECLS

/**
 * The clock of the host.
 *
 * Owner   a constant; valid for ever.
 * Thread  any.
 * Since   0.1
 */
PR_API const pr_clock *pr_clock_system(void);

PR_END_DECLS

#endif
