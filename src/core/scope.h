/*
 * A handler's scope: what one delivery gives to its handler.
 */
#ifndef PR_CORE_SCOPE_H
#define PR_CORE_SCOPE_H

#include <stdbool.h>
#include <stdint.h>

#include <postroom/endpoint.h>

#define PR_REASON_SIZE (PR_ERROR_TEXT_SIZE_MAX + 1)

struct pr_scope {
    const pr_message *message;
    const void *object; /* decoded by contract; NULL without contracts */
    pr_unit *unit;
    uint32_t attempts;
    bool delay_set;
    int64_t retry_delay_ms;
    char reason[PR_REASON_SIZE]; /* why it failed; "" = the handler did not say */
};

/* What messages enqueued by the handler inherit from the one in hand. */
pr_status pr__scope_inherit(pr_scope *scope, const char *endpoint_id, pr_error *err);

#endif
