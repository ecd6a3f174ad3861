/*
 * Publishing by the bus: directly to a transport, or through a unit's outbox.
 *
 * Keeps: both ways prepare a message alike, so that a receiver cannot tell them apart; a direct
 * message has one outcome, and what is not known to have arrived is said to be unknown.
 * Must not know: endpoints, the relay.
 */
#include <string.h>

#include "base/error.h"
#include "base/sized.h"
#include "base/text.h"
#include "base/time.h"
#include "core/address.h"
#include "core/bus.h"
#include "core/contract.h"
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

/* One message on its way. */
typedef struct sending {
    pr_transport *sender;
    const pr_message *message;
    const atomic_bool *cancelled; /* may be NULL */
    int64_t deadline_ms, until_us;
    bool held; /* the sender has it, and no outcome came */
} sending;

/* For how long to wait in one call: a cancellation must be seen. */
static int64_t slice_ms(const sending *of)
{
    int64_t left_ms = (of->until_us - pr__monotonic_us() + 999) / 1000;
    if (left_ms <= 0)
        return 0;
    return of->cancelled && left_ms > PR__BUS_SLICE_US / 1000 ? PR__BUS_SLICE_US / 1000 : left_ms;
}

static bool is_late(const sending *of)
{
    return pr__monotonic_us() >= of->until_us;
}

static pr_status check_cancelled(const sending *of, pr_error *err)
{
    if (of->cancelled && atomic_load(of->cancelled))
        return pr__fail(err, PR_E_CANCELLED, ORIGIN, "the bus was stopped before it was sent");
    return PR_OK;
}

/* A connection that fails tells so before its time is over; one that takes longer is waited for. */
static pr_status open_sender(const sending *of, pr_error *err)
{
    for (;;) {
        pr_error local = PR_ERROR_INIT;
        int64_t wait_ms = slice_ms(of), began_us = pr__monotonic_us();
        pr_status status = pr_transport_open(of->sender, wait_ms, &local);
        if (status == PR_OK)
            return status;
        TRY(check_cancelled(of, err));
        if (is_late(of) || pr__monotonic_us() - began_us < wait_ms * 1000) {
            pr__error_copy(err, &local);
            return status;
        }
    }
}

static pr_status hand_over(sending *of, pr_error *err)
{
    pr_submission submission = {.ticket = 1, .message = of->message};
    size_t accepted = 0;
    for (;;) {
        TRY(check_cancelled(of, err));
        TRY(pr_transport_submit(of->sender, &submission, 1, &accepted, err));
        of->held = accepted == 1;
        if (of->held)
            return PR_OK;
        if (is_late(of))
            return pr__fail_retry(err, PR_E_BUSY, PR_RETRY_SAME, ORIGIN,
                                  "transport '%s' takes nothing now", of->sender->name);
        pr__sleep_us(FULL_US);
    }
}

/* The sender is ours, one message at a time: the first outcome is this one's. */
static pr_status submit(sending *of, pr_error *err)
{
    TRY(open_sender(of, err));
    TRY(hand_over(of, err));
    for (;;) {
        pr_submitted outcome;
        size_t count = 0;
        bool late = is_late(of);
        TRY(pr_transport_poll(of->sender, slice_ms(of), &outcome, 1, &count, err));
        of->held = count == 0;
        if (!of->held)
            return outcome_status(&outcome, of->message->destination, err);
        TRY(check_cancelled(of, err));
        if (late)
            return pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_UNKNOWN, ORIGIN,
                                  "transport '%s' did not confirm within %lld ms", of->sender->name,
                                  (long long)of->deadline_ms);
    }
}

/* A sender that still holds the message, or whose connection failed, is not sound. */
pr_status pr__bus_submit(pr_bus *bus, pr__bus_transport *at, const pr_message *message,
                         int64_t deadline_ms, const atomic_bool *cancelled, pr_error *err)
{
    sending of = {.message = message,
                  .cancelled = cancelled,
                  .deadline_ms = deadline_ms,
                  .until_us = pr__monotonic_us() + deadline_ms * 1000};
    pr_status status = pr__bus_transport_take(at, of.until_us, cancelled, &of.sender, err);
    if (status == PR_OK) {
        status = submit(&of, err);
        pr__bus_transport_give(at, of.sender,
                               !of.held && status != PR_E_BACKEND && status != PR_E_BUSY);
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
    TRY(pr__bus_submit(bus, at, &prepared.message, bus->opt.publish_deadline_ms, NULL, err));
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
    pr_message message =
        PR_MESSAGE(.type = contract->type, .type_version = contract->type_version,
                   .content_type = pr_contract_content_type(contract), .key = key, .body = body,
                   .body_size_bytes = size, .headers = pr__contract_headers(contract));
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
