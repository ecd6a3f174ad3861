/*
 * The randomness port: ids, tokens and jitter come from here.
 */
#ifndef POSTROOM_RANDOM_H
#define POSTROOM_RANDOM_H

#include <stddef.h>
#include <stdint.h>

#include <postroom/export.h>

typedef struct pr_random {
    uint32_t size;
    void (*fill)(void *user, void *bytes, size_t count); /* never fails; any thread */
    void *user;
} pr_random;

PR_BEGIN_DECLS

/**
 * Randomness of the kernel.
 *
 * Owner   a constant; valid for ever.
 * Thread  any.
 * Since   0.1
 */
PR_API const pr_random *pr_random_system(void);

PR_END_DECLS

#endif
