/*
 * The scope of one delivery: what a handler reads of its message, and what it says of it.
 *
 * Keeps: follow-ups carry on correlation and trace of the message in hand, and name it as their
 * cause; the first thing that hindered the handling is the one that is told.
 * Must not know: transports, what becomes of the message.
 */
#include "core/scope.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "core/endpoint.h"

#define ORIGIN "scope"

/* A century: beyond it an instant in microseconds might not hold it. */
#define RETRY_DELAY_MS_MAX (100LL * 366 * 24 * 3600 * 1000)

void *pr__scope_free(pr_scope *scope)
{
    if (!scope)
        return NULL;
    pr_decoded_free(scope->decoded);
    return pr__free(scope);
}

pr_status pr__scope_inherit(pr_scope *scope, pr_error *err)
{
    const pr_message *message = scope->message;
    bool correlated = !pr__text_empty(message->correlation_id);
    bool spanned = scope->traceparent[0] != '\0';
    pr_unit_context context = {
        .size = (uint32_t)sizeof context,
        /* a message that belongs to no conversation begins one */
        .correlation_id = correlated ? message->correlation_id : message->id,
        .causation_id = message->id,
        .traceparent = spanned ? scope->traceparent : message->traceparent,
        .tracestate = message->tracestate,
        .tenant = message->tenant,
        .source = scope->endpoint->opt.id,
    };
    return pr_unit_set_context(scope->unit, &context, err);
}

pr_handled pr__scope_trouble(pr_scope *scope, const pr_error *err)
{
    if (scope->trouble.status == PR_OK)
        scope->trouble = *err;
    return PR_HANDLED_STOPPED;
}

void pr__scope_set_reason(pr_scope *scope, const char *reason)
{
    pr__one_line(scope->reason, sizeof scope->reason, reason, strlen(reason));
}

bool pr__scope_decode(pr_scope *scope)
{
    const pr_contracts *contracts = scope->endpoint->opt.contracts;
    if (!contracts || scope->decode_tried)
        return !contracts || scope->decoded;
    scope->decode_tried = true;
    const pr_message *message = scope->message;
    pr_error local = PR_ERROR_INIT;
    pr_status status = pr_contracts_decode(contracts, message, &scope->decoded, &local);
    if (status == PR_E_NOMEM)
        (void)pr__scope_trouble(scope, &local);
    else if (status != PR_OK)
        pr__scope_set_reason(scope, local.message);
    return status == PR_OK;
}

bool pr__scope_decode_early(pr_scope *scope)
{
    const pr_contracts *contracts = scope->endpoint ? scope->endpoint->opt.contracts : NULL;
    if (contracts && !scope->decode_tried)
        scope->decode_tried =
            pr_contracts_decode(contracts, scope->message, &scope->decoded, NULL) == PR_OK;
    return scope->decoded != NULL;
}

const pr_message *pr_scope_message(const pr_scope *scope)
{
    return scope ? scope->message : NULL;
}

const void *pr_scope_object(const pr_scope *scope)
{
    return scope && scope->decoded ? pr_decoded_object(scope->decoded) : NULL;
}

uint32_t pr_scope_attempts(const pr_scope *scope)
{
    return scope ? scope->attempts : 0;
}

const char *pr_scope_endpoint(const pr_scope *scope)
{
    return scope ? scope->endpoint->opt.id : NULL;
}

const char *pr_scope_reason(const pr_scope *scope)
{
    return scope ? scope->reason : "";
}

static int64_t bounded_delay(int64_t delay_ms)
{
    return delay_ms < RETRY_DELAY_MS_MAX ? delay_ms : RETRY_DELAY_MS_MAX;
}

void pr_scope_fail(pr_scope *scope, const char *reason, int64_t retry_delay_ms)
{
    if (!scope)
        return;
    scope->reason[0] = '\0';
    if (reason)
        pr__scope_set_reason(scope, reason);
    scope->delay_set = retry_delay_ms >= 0;
    scope->retry_delay_ms = bounded_delay(retry_delay_ms);
}

pr_handled pr_scope_defer(pr_scope *scope, int64_t delay_ms)
{
    if (scope)
        pr_scope_fail(scope, "put off by its handler", delay_ms > 0 ? delay_ms : 0);
    return PR_HANDLED_DEFER;
}

/* A stop is seen by whoever looks first: from then on the grace is counted. */
static bool stop_grace_over(pr_endpoint *endpoint)
{
    if (!atomic_load(&endpoint->stopping))
        return false;
    int64_t now_us = pr__endpoint_now_us(endpoint), none = 0;
    int64_t seen_us = atomic_load(&endpoint->stop_seen_us);
    if (seen_us == 0 && !atomic_compare_exchange_strong(&endpoint->stop_seen_us, &none, now_us))
        seen_us = none;
    else if (seen_us == 0)
        seen_us = now_us;
    if (now_us - seen_us >= endpoint->opt.stop_grace_ms * 1000)
        atomic_store(&endpoint->cancelling, true);
    return atomic_load(&endpoint->cancelling);
}

bool pr_scope_cancelled(const pr_scope *scope)
{
    if (!scope)
        return false;
    pr_endpoint *endpoint = scope->endpoint;
    bool late = scope->deadline_us > 0 && pr__endpoint_now_us(endpoint) >= scope->deadline_us;
    bool cancelled = late || atomic_load(&scope->lease.lost) || stop_grace_over(endpoint);
    if (cancelled) /* the endpoint wants to know; nothing that the handler sees is changed */
        atomic_store(&((pr_scope *)(uintptr_t)scope)->cancelled_told, true);
    return cancelled;
}
