/*
 * The outbox: prepares messages for the log and hands them to the store within the unit.
 *
 * Keeps: what reaches the store has its id, version, content type and time, the context of its
 * unit, and was checked against every limit; a message that is refused leaves the unit as it
 * was; all messages of a call are written or none.
 * Must not know: tables, lanes, who will read the log.
 */
#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/sized.h"
#include "base/text.h"
#include "base/uuid.h"
#include "core/message.h"
#include "core/outbox.h"
#include "core/unit.h"

#define ORIGIN "outbox"

/* Every call's memory, freed at its end. */
typedef struct enqueue_call {
    pr__prepared *prepared;
    pr__enqueue *entries;
} enqueue_call;

static void enqueue_call_done(enqueue_call *call)
{
    pr__free(call->prepared);
    pr__free(call->entries);
}

static void inherit(pr_message *message, const pr_unit_context *context)
{
    if (!message->correlation_id)
        message->correlation_id = context->correlation_id;
    if (!message->causation_id)
        message->causation_id = context->causation_id;
    if (!message->traceparent) { /* a state belongs to its parent: never mix two traces */
        message->traceparent = context->traceparent;
        if (!message->tracestate)
            message->tracestate = context->tracestate;
    }
    if (!message->tenant)
        message->tenant = context->tenant;
    if (!message->source)
        message->source = context->source;
}

pr_status pr__outbox_prepare(const pr__outbox_ground *ground, const pr_message *message,
                             pr__prepared *ret, pr_error *err)
{
    TRY(pr__sized_check(message, sizeof *message, "pr_message", ORIGIN, err));
    ret->message = *message;
    pr_message *own = &ret->message;
    own->size = (uint32_t)sizeof *own;
    int64_t now_us = ground->clock->wall_us(ground->clock->user);
    if (own->id) {
        own->id = pr__message_id_canonical(own->id, ret->id);
    } else {
        uint8_t random[10];
        ground->random->fill(ground->random->user, random, sizeof random);
        pr__uuid7(now_us, random, ret->id);
        own->id = ret->id;
    }
    if (own->type_version == 0)
        own->type_version = 1;
    if (!own->content_type)
        own->content_type = PR_CONTENT_TYPE_JSON;
    if (own->occurred_at_us == 0)
        own->occurred_at_us = now_us;
    inherit(own, ground->context);
    return pr_message_check(own, ground->body_size_max, err);
}

/* Does this error leave the transaction as it was? */
static bool harmless(pr_status status)
{
    return status == PR_E_CONFLICT || status == PR_E_INVALID || status == PR_E_LIMIT ||
           status == PR_E_CONTENT;
}

static pr_status write_entries(pr_unit *unit, enqueue_call *call, size_t count, pr_error *err)
{
    pr_unit *root = pr__unit_root(unit);
    pr__unit_core *core = NULL;
    TRY(pr__unit_core_get(root, &core, err));
    PR_FAULT("unit.before_enqueue");
    pr_error local = PR_ERROR_INIT;
    pr_status status = root->ops->enqueue(root, call->entries, count, &local);
    if (status != PR_OK) {
        if (!harmless(status))
            pr__unit_spoil(unit, local.message);
        pr__error_copy(err, &local);
        return status;
    }
    PR_FAULT("unit.after_enqueue");
    for (size_t i = 0; i < count; i++)
        core->enqueued_count += call->entries[i].duplicate ? 0 : 1;
    return PR_OK;
}

static pr_status enqueue(pr_unit *unit, const pr_message *messages, size_t count, bool caller_ids,
                         enqueue_call *call, pr_error *err)
{
    call->prepared = pr__alloc_array(count, sizeof *call->prepared);
    call->entries = pr__alloc_array(count, sizeof *call->entries);
    if (!call->prepared || !call->entries)
        return pr__fail_nomem(err, ORIGIN);
    const pr_store *store = unit->store;
    pr__outbox_ground ground = {.clock = store->clock,
                                .random = store->random,
                                .context = pr__unit_context(unit),
                                .body_size_max = store->body_size_max};
    for (size_t i = 0; i < count; i++) {
        pr_status status = pr__outbox_prepare(&ground, &messages[i], &call->prepared[i], err);
        if (status != PR_OK) {
            if (count > 1)
                pr__error_context(err, "message %zu", i);
            return status;
        }
        call->entries[i].message = &call->prepared[i].message;
        call->entries[i].caller_id = caller_ids && messages[i].id;
    }
    return write_entries(unit, call, count, err);
}

pr_status pr_unit_enqueue_many(pr_unit *unit, const pr_message *messages, size_t count,
                               pr_enqueued *ret_enqueued, pr_error *err)
{
    if (count > 0 && !messages)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "messages is NULL");
    TRY(pr__unit_usable(unit, err));
    if (count == 0)
        return PR_OK;
    __attribute__((cleanup(enqueue_call_done))) enqueue_call call = {NULL, NULL};
    TRY(enqueue(unit, messages, count, /* caller_ids= */ true, &call, err));
    for (size_t i = 0; ret_enqueued && i < count; i++) {
        memcpy(ret_enqueued[i].id, call.prepared[i].id, sizeof ret_enqueued[i].id);
        ret_enqueued[i].duplicate = call.entries[i].duplicate;
    }
    return PR_OK;
}

pr_status pr_unit_enqueue(pr_unit *unit, const pr_message *message, pr_enqueued *ret_enqueued,
                          pr_error *err)
{
    if (!message)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "message is NULL");
    return pr_unit_enqueue_many(unit, message, 1, ret_enqueued, err);
}

pr_status pr__outbox_enqueue_events(pr_unit *unit, const pr_message *messages, size_t count,
                                    pr_error *err)
{
    __attribute__((cleanup(enqueue_call_done))) enqueue_call call = {NULL, NULL};
    return enqueue(unit, messages, count, /* caller_ids= */ false, &call, err);
}
