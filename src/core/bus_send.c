/*
 * Publishing by the bus: directly to a transport, or through a unit's outbox.
 *
 * Keeps: both ways prepare a message alike, so that a receiver cannot tell them apart; a direct
 * message has one outcome, and what is not known to have arrived is said to be unknown.
 * Must not know: endpoints, the relay.
 */
#include <string.h>

#include <postroom/headers.h>

#include "base/error.h"
#include "base/sized.h"
#include "base/text.h"
#include "base/time.h"
#include "core/address.h"
#include "core/bus.h"
#include "port/store.h"

#define ORIGIN  "bus"
#define FULL_US 1000 /* between two tries while the transport takes nothing */

static pr_status check(const pr_bus *bus, const pr_message *message, pr_error *err)
{
    if (!bus)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the bus is NULL");
    if (bus->transport_count == 0)
        return pr__fail(err, PR_E_STATE, ORIGIN, "the bus has no transport: add one first");
    return pr__sized_check(message, sizeof *message, "pr_message", ORIGIN, err);
}

pr_status pr__bus_prepare(const pr_bus *bus, const pr_message *message, pr__prepared *ret,
                          pr_error *err)
{
    const pr__outbox_ground ground = {.clock = bus->opt.clock,
                                      .random = bus->opt.random,
                                      .context = &bus->context,
                                      .body_size_max = bus->opt.store->body_size_max};
    return pr__outbox_prepare(&ground, message, ret, err);
}

pr_status pr__bus_address(const pr_bus *bus, const char *to, const pr_message *message,
                          char out[PR__ADDRESS_SIZE], pr_error *err)
{
    const char *transport = bus->transports[0].given->name;
    if (!to && pr__text_empty(message->type))
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the message has no type");
    if (!to)
        return pr__address_of_topic(transport, message->type, out, PR__ADDRESS_SIZE, err);
    if (!strstr(to, "://"))
        return pr__address_of_endpoint(transport, to, out, PR__ADDRESS_SIZE, err);
    if (strlen(to) >= PR__ADDRESS_SIZE)
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "the address has %zu bytes, at most %d",
                        strlen(to), PR__ADDRESS_SIZE - 1);
    pr__format(out, PR__ADDRESS_SIZE, "%s", to);
    return PR_OK;
}

/* ---- directly ---- */

static pr_status outcome_status(const pr_submitted *outcome, const char *destination, pr_error *err)
{
    switch (outcome->outcome) {
    case PR_SUBMIT_CONFIRMED:
        return PR_OK;
    case PR_SUBMIT_RETURNED:
        return pr__fail(err, PR_E_NOT_FOUND, ORIGIN, "nobody would get it at '%s': %s", destination,
                        outcome->reason);
    case PR_SUBMIT_REFUSED:
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "'%s' refused it: %s", destination,
                        outcome->reason);
    case PR_SUBMIT_TOO_LARGE:
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "too large for '%s': %s", destination,
                        outcome->reason);
    case PR_SUBMIT_LOST:
        break;
    }
    return pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_UNKNOWN, ORIGIN,
                          "whether it arrived at '%s' is not known, publish it again with the same "
                          "id: %s",
                          destination, outcome->reason);
}

static pr_status hand_over(pr_transport *sender, const pr_message *message, int64_t until_us,
                           pr_error *err)
{
    pr_submission submission = {.ticket = 1, .message = message};
    size_t accepted = 0;
    for (;;) {
        TRY(pr_transport_submit(sender, &submission, 1, &accepted, err));
        if (accepted == 1)
            return PR_OK;
        if (pr__monotonic_us() >= until_us)
            return pr__fail_retry(err, PR_E_BUSY, PR_RETRY_SAME, ORIGIN,
                                  "transport '%s' takes nothing now", sender->name);
        pr__sleep_us(FULL_US);
    }
}

static int64_t left_ms_until(int64_t until_us)
{
    int64_t left_ms = (until_us - pr__monotonic_us()) / 1000;
    return left_ms > 0 ? left_ms : 0;
}

/* The sender is ours, one message at a time: the first outcome is this one's. */
static pr_status submit(pr_transport *sender, const pr_message *message, int64_t deadline_ms,
                        int64_t until_us, pr_error *err)
{
    TRY(pr_transport_open(sender, left_ms_until(until_us), err));
    TRY(hand_over(sender, message, until_us, err));
    for (;;) {
        pr_submitted outcome;
        size_t count = 0;
        int64_t left_ms = left_ms_until(until_us);
        TRY(pr_transport_poll(sender, left_ms, &outcome, 1, &count, err));
        if (count == 1)
            return outcome_status(&outcome, message->destination, err);
        if (left_ms == 0)
            return pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_UNKNOWN, ORIGIN,
                                  "transport '%s' did not confirm within %lld ms", sender->name,
                                  (long long)deadline_ms);
    }
}

pr_status pr__bus_submit(pr_bus *bus, pr__bus_transport *at, const pr_message *message,
                         int64_t deadline_ms, pr_error *err)
{
    pr_transport *sender = NULL;
    int64_t until_us = pr__monotonic_us() + deadline_ms * 1000;
    pr_status status = pr__bus_transport_take(at, until_us, &sender, err);
    if (status == PR_OK) {
        status = submit(sender, message, deadline_ms, until_us, err);
        pr__bus_transport_give(at, sender, status != PR_E_BACKEND && status != PR_E_BUSY);
    }
    atomic_fetch_add(status == PR_OK ? &bus->published : &bus->refused, 1);
    return status;
}

static pr_status publish(pr_bus *bus, const char *to, const pr_message *message,
                         pr_enqueued *ret_enqueued, pr_error *err)
{
    char address[PR__ADDRESS_SIZE];
    pr__prepared prepared;
    pr__bus_transport *at = NULL;
    pr_message own = *message;
    TRY(pr__bus_address(bus, to, message, address, err));
    own.destination = address;
    if (own.deliver_at_us != 0)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "deliver_at_us needs the outbox: use pr_bus_enqueue");
    TRY(pr__bus_prepare(bus, &own, &prepared, err));
    TRY(pr__bus_route(bus, address, &at, err));
    TRY(pr__bus_submit(bus, at, &prepared.message, bus->opt.publish_deadline_ms, err));
    if (ret_enqueued) {
        memcpy(ret_enqueued->id, prepared.id, sizeof ret_enqueued->id);
        ret_enqueued->duplicate = false;
    }
    return PR_OK;
}

pr_status pr_bus_publish(pr_bus *bus, const pr_message *message, pr_enqueued *ret_enqueued,
                         pr_error *err)
{
    TRY(check(bus, message, err));
    return publish(bus, message->destination, message, ret_enqueued, err);
}

pr_status pr_bus_send(pr_bus *bus, const char *to, const pr_message *message,
                      pr_enqueued *ret_enqueued, pr_error *err)
{
    TRY(check(bus, message, err));
    if (pr__text_empty(to))
        return pr__fail(err, PR_E_INVALID, ORIGIN, "`to` is empty: name an endpoint or an address");
    return publish(bus, to, message, ret_enqueued, err);
}

pr_status pr_bus_publish_object(pr_bus *bus, const pr_contract *contract, const void *object,
                                const char *key, pr_enqueued *ret_enqueued, pr_error *err)
{
    AUTO(void) body = NULL;
    size_t size = 0;
    if (!contract)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the contract is NULL");
    TRY(pr_contract_encode(contract, object, &body, &size, err));
    pr_message message = PR_MESSAGE(.type = contract->type, .type_version = contract->type_version,
                                    .content_type = pr_contract_content_type(contract), .key = key,
                                    .body = body, .body_size_bytes = size);
    if (contract->flags & PR_CONTRACT_UNROUTED_OK)
        message.headers = "{\"" PR_HEADER_NAME_UNROUTED_OK "\":{\"bool\":true}}";
    return pr_bus_publish(bus, &message, ret_enqueued, err);
}

/* ---- through the outbox ---- */

pr_status pr_bus_enqueue(pr_bus *bus, pr_unit *unit, const char *to, const pr_message *message,
                         pr_enqueued *ret_enqueued, pr_error *err)
{
    char address[PR__ADDRESS_SIZE];
    TRY(check(bus, message, err));
    pr_message own = *message;
    own.size = (uint32_t)sizeof own;
    if (to || !own.destination) {
        TRY(pr__bus_address(bus, to, message, address, err));
        own.destination = address;
    }
    if (!own.source)
        own.source = bus->source;
    return pr_unit_enqueue(unit, &own, ret_enqueued, err);
}
