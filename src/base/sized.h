/*
 * Structs with a size in front: what a caller of another version hands over.
 */
#ifndef PR_BASE_SIZED_H
#define PR_BASE_SIZED_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define PR__SIZED_MAX 4096 /* no struct of ours comes near it: a size above it was never set */

/* `known` is sizeof the struct as we know it. A shorter one is refused; of a longer one, from a
   newer caller, the unknown tail must be zero. */
static inline pr_status pr__sized_check(const void *given, size_t known, const char *name,
                                        const char *origin, pr_error *err)
{
    if (!given)
        return pr__fail(err, PR_E_INVALID, origin, "%s is NULL", name);
    const uint32_t size = *(const uint32_t *)given;
    if (size < known || size > PR__SIZED_MAX)
        return pr__fail(err, PR_E_INVALID, origin, "size of %s is %u, must be its sizeof, %zu",
                        name, size, known);
    for (size_t i = known; i < size; i++) {
        /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): the caller says so */
        if (((const unsigned char *)given)[i] != 0)
            return pr__fail(err, PR_E_INVALID, origin,
                            "%s sets a field of a newer version, at byte %zu", name, i);
    }
    return PR_OK;
}

#endif
