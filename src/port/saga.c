/*
 * What every store checks of a saga alike.
 *
 * Invariant: a key that was accepted can be found again.
 */
#include "port/saga.h"

#include <string.h>

#include <postroom/limits.h>

#include "base/error.h"
#include "base/text.h"

#define ORIGIN       "saga"
#define LEASE_MS_MAX (INT64_C(366) * 24 * 3600 * 1000 * 100) /* a century */

static bool fits(const char *text)
{
    size_t size = text ? strlen(text) : 0;
    return size <= PR_ID_SIZE_MAX && (size == 0 || pr__utf8_valid(text, size));
}

pr_status pr__saga_key_check(const pr__saga_key *key, pr_error *err)
{
    if (!key || pr__text_empty(key->saga_type) || pr__text_empty(key->correlation_key))
        return pr__fail(err, PR_E_INVALID, ORIGIN, "a saga has a type and a correlation key");
    if (!fits(key->saga_type) || !fits(key->correlation_key) || !fits(key->tenant))
        return pr__fail(err, PR_E_CONTENT, ORIGIN,
                        "saga type, correlation key and tenant must be UTF-8 of at most %d bytes",
                        PR_ID_SIZE_MAX);
    return PR_OK;
}

int64_t pr__saga_lease_bounded(int64_t lease_ms)
{
    return lease_ms < LEASE_MS_MAX ? lease_ms : LEASE_MS_MAX;
}
