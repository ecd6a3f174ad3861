/*
 * What a handler sends: publish, send, reply and delay, all into its unit's outbox.
 *
 * Keeps: nothing is sent but by the commit of the unit.
 * Must not know: how the unit comes to be (endpoint_chain.c), transports but for their name.
 */
#include <string.h>

#include <postroom/headers.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "base/text.h"
#include "core/address.h"
#include "core/endpoint.h"
#include "core/message.h"
#include "core/scope.h"

#define ORIGIN       "scope"
#define ADDRESS_SIZE 512
#define DELAY_MS_MAX (100LL * 366 * 24 * 3600 * 1000)

DEFINE_AUTO(pr_headers, pr_headers_free);

static pr_status check(const pr_scope *scope, const pr_message *message, pr_error *err)
{
    if (!scope)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the scope is NULL");
    return pr__sized_check(message, sizeof *message, "pr_message", ORIGIN, err);
}

static pr_status enqueue(pr_scope *scope, const pr_message *message, pr_enqueued *ret_enqueued,
                         pr_error *err)
{
    pr_unit *unit = NULL;
    TRY(pr_scope_unit_get(scope, &unit, err));
    return pr_unit_enqueue(unit, message, ret_enqueued, err);
}

/* Without a transport of its own the store decides, as for every other message. */
static pr_status to_topic(const pr_scope *scope, pr_message *message, char address[ADDRESS_SIZE],
                          pr_error *err)
{
    const char *transport = scope->endpoint->opt.publish_to;
    if (!transport || message->destination || !message->type)
        return PR_OK;
    TRY(pr__address_of_topic(transport, message->type, address, ADDRESS_SIZE, err));
    message->destination = address;
    return PR_OK;
}

pr_status pr_scope_publish(pr_scope *scope, const pr_message *message, pr_enqueued *ret_enqueued,
                           pr_error *err)
{
    TRY(check(scope, message, err));
    if (message->destination)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "a published message goes to the topic of its type: leave its destination "
                        "out, or use pr_scope_send");
    char address[ADDRESS_SIZE];
    pr_message own = *message;
    own.size = (uint32_t)sizeof own;
    TRY(to_topic(scope, &own, address, err));
    return enqueue(scope, &own, ret_enqueued, err);
}

pr_status pr_scope_send(pr_scope *scope, const char *to, const pr_message *message,
                        pr_enqueued *ret_enqueued, pr_error *err)
{
    char address[ADDRESS_SIZE];
    TRY(check(scope, message, err));
    if (pr__text_empty(to))
        return pr__fail(err, PR_E_INVALID, ORIGIN, "`to` is empty: name an endpoint or an address");
    pr_message own = *message;
    own.size = (uint32_t)sizeof own;
    own.destination = to;
    if (!strstr(to, "://")) {
        TRY(pr__address_of_endpoint(scope->endpoint->transport->name, to, address, sizeof address,
                                    err));
        own.destination = address;
    }
    return enqueue(scope, &own, ret_enqueued, err);
}

pr_status pr_scope_reply(pr_scope *scope, const pr_message *message, pr_enqueued *ret_enqueued,
                         pr_error *err)
{
    TRY(check(scope, message, err));
    const pr_message *request = scope->message;
    AUTO(pr_headers) headers = NULL;
    const pr_header *to = NULL;
    if (request->headers) {
        TRY(pr_headers_parse(request->headers, &headers, err));
        to = pr_headers_get(headers, PR_HEADER_NAME_REPLY_TO);
    }
    if (!to || to->kind != PR_HEADER_TEXT || pr__text_empty(to->text))
        return pr__fail(
            err, PR_E_NOT_FOUND, ORIGIN,
            "the message asks for no answer: it has no header " PR_HEADER_NAME_REPLY_TO);
    pr_message own = *message;
    own.size = (uint32_t)sizeof own;
    own.destination = to->text;
    if (own.expires_at_us == 0)
        own.expires_at_us = request->expires_at_us; /* nobody waits any longer */
    return enqueue(scope, &own, ret_enqueued, err);
}

pr_status pr_scope_delay(pr_scope *scope, const pr_message *message, int64_t delay_ms,
                         pr_enqueued *ret_enqueued, pr_error *err)
{
    TRY(check(scope, message, err));
    if (delay_ms < 0 || delay_ms > DELAY_MS_MAX)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "delay_ms is %lld, must be 0 to a century",
                        (long long)delay_ms);
    if (message->deliver_at_us != 0)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "the message has its own deliver_at_us: leave it out, or send it as it is");
    char address[ADDRESS_SIZE];
    pr_unit *unit = NULL;
    int64_t now_us = 0;
    TRY(pr_scope_unit_get(scope, &unit, err));
    TRY(pr__store_now(scope->store, &now_us, err));
    pr_message own = *message;
    own.size = (uint32_t)sizeof own;
    own.deliver_at_us = now_us + delay_ms * 1000;
    TRY(to_topic(scope, &own, address, err));
    return pr_unit_enqueue(unit, &own, ret_enqueued, err);
}
