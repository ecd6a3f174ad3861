/*
 * Randomness of the kernel. getrandom() is called for a whole pool at a time where that is cheap to
 * keep: here it is not kept at all, so that a forked child never repeats its parent's bytes.
 */
#include <postroom/random.h>

#include <errno.h>
#include <sys/random.h>

#include "base/assert.h"

static void system_fill(void *user, void *bytes, size_t count)
{
    (void)user;
    unsigned char *at = bytes;
    while (count > 0) {
        ssize_t got = getrandom(at, count, 0);
        if (got < 0) {
            /* Ids and lock tokens that repeat would lose or double messages. */
            pr_assert(errno == EINTR);
            continue;
        }
        at += got;
        count -= (size_t)got;
    }
}

static const pr_random system_random = {
    .size = (uint32_t)sizeof(pr_random),
    .fill = system_fill,
    .user = NULL,
};

const pr_random *pr_random_system(void)
{
    return &system_random;
}
