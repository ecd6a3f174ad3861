/*
 * The scope of one delivery.
 *
 * Keeps: follow-ups carry on correlation and trace of the message in hand, and name it as their
 * cause.
 * Must not know: transports, what becomes of the message.
 */
#include "core/scope.h"

#include <string.h>

#include "base/error.h"
#include "base/text.h"

/* A century: beyond it an instant in microseconds might not hold it. */
#define RETRY_DELAY_MS_MAX (100LL * 366 * 24 * 3600 * 1000)

pr_status pr__scope_inherit(pr_scope *scope, const char *endpoint_id, pr_error *err)
{
    const pr_message *message = scope->message;
    bool correlated = !pr__text_empty(message->correlation_id);
    pr_unit_context context = {
        .size = (uint32_t)sizeof context,
        /* a message that belongs to no conversation begins one */
        .correlation_id = correlated ? message->correlation_id : message->id,
        .causation_id = message->id,
        .traceparent = message->traceparent,
        .tracestate = message->tracestate,
        .tenant = message->tenant,
        .source = endpoint_id,
    };
    return pr_unit_set_context(scope->unit, &context, err);
}

const pr_message *pr_scope_message(const pr_scope *scope)
{
    return scope ? scope->message : NULL;
}

const void *pr_scope_object(const pr_scope *scope)
{
    return scope ? scope->object : NULL;
}

pr_unit *pr_scope_unit(pr_scope *scope)
{
    return scope ? scope->unit : NULL;
}

uint32_t pr_scope_attempts(const pr_scope *scope)
{
    return scope ? scope->attempts : 0;
}

void pr_scope_fail(pr_scope *scope, const char *reason, int64_t retry_delay_ms)
{
    if (!scope)
        return;
    scope->reason[0] = '\0';
    if (reason)
        pr__one_line(scope->reason, sizeof scope->reason, reason, strlen(reason));
    scope->delay_set = retry_delay_ms >= 0;
    scope->retry_delay_ms =
        retry_delay_ms < RETRY_DELAY_MS_MAX ? retry_delay_ms : RETRY_DELAY_MS_MAX;
}
