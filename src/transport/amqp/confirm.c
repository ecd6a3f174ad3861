/*
 * The window of unconfirmed publishes.
 *
 * Owns: which delivery tag is which message.
 * Keeps: each entry is told to a sink once. A return wins over the ack that follows it. A confirm
 * may be for many; it never touches a tag that was settled, or that was not sent.
 * Must not know: frames, sockets, clocks.
 */
#include "transport/amqp/confirm.h"

#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"

#define ORIGIN "amqp.confirm"

pr_status pr__confirms_init(pr__confirms *confirms, uint32_t capacity, pr_error *err)
{
    *confirms = (pr__confirms){.capacity = capacity, .confirmed = 1, .sent = 1};
    confirms->bucket_count = PR__CONFIRM_BUCKETS_MIN;
    while (confirms->bucket_count < 4 * capacity)
        confirms->bucket_count *= 2;
    confirms->entries = pr__alloc_array(capacity, sizeof(*confirms->entries));
    confirms->buckets = pr__alloc_array(confirms->bucket_count, sizeof(*confirms->buckets));
    if (confirms->entries && confirms->buckets)
        return PR_OK;
    pr__confirms_done(confirms);
    return pr__fail_nomem(err, ORIGIN);
}

void pr__confirms_done(pr__confirms *confirms)
{
    confirms->entries = pr__free(confirms->entries);
    confirms->buckets = pr__free(confirms->buckets);
}

pr__confirm_entry *pr__confirms_at(pr__confirms *confirms, uint64_t tag)
{
    return &confirms->entries[tag % confirms->capacity];
}

uint32_t pr__confirms_hash(const char *id)
{
    return (uint32_t)pr__quick_hash(id, strlen(id), 0);
}

static uint32_t *bucket_of(const pr__confirms *confirms, uint32_t hash)
{
    return &confirms->buckets[hash & (confirms->bucket_count - 1)];
}

/* The message is not on its way any more, as far as its sender is concerned. */
static void tell(pr__confirms *confirms, pr__confirm_entry *entry, pr_submit_outcome outcome,
                 pr__confirm_sink sink, void *user)
{
    if (!entry->message)
        return;
    confirms->bytes -= entry->message->body_size_bytes;
    (*bucket_of(confirms, entry->id_hash))--;
    sink(user, entry, outcome);
    entry->message = NULL;
}

bool pr__confirms_has(const pr__confirms *confirms, const char *id, uint32_t hash)
{
    if (*bucket_of(confirms, hash) == 0)
        return false;
    for (uint64_t tag = confirms->confirmed; tag < confirms->sent; tag++) {
        const pr__confirm_entry *entry = &confirms->entries[tag % confirms->capacity];
        if (entry->message && entry->id_hash == hash && strcmp(entry->message->id, id) == 0)
            return true;
    }
    return false;
}

void pr__confirms_push(pr__confirms *confirms, uint64_t ticket, const pr_message *message,
                       uint32_t hash, int64_t now_us)
{
    pr_assert(!pr__confirms_full(confirms));
    *pr__confirms_at(confirms, confirms->sent) = (pr__confirm_entry){
        .ticket = ticket, .message = message, .sent_at_us = now_us, .id_hash = hash};
    confirms->sent++;
    confirms->bytes += message->body_size_bytes;
    (*bucket_of(confirms, hash))++;
}

bool pr__confirms_returned(pr__confirms *confirms, const char *id, size_t id_size, uint16_t code)
{
    for (uint64_t tag = confirms->confirmed; tag < confirms->sent; tag++) {
        pr__confirm_entry *entry = pr__confirms_at(confirms, tag);
        if (entry->settled || !entry->message || entry->return_code != 0)
            continue;
        if (strlen(entry->message->id) == id_size && memcmp(entry->message->id, id, id_size) == 0) {
            entry->return_code = code ? code : 312;
            return true;
        }
    }
    return false;
}

static void settle_one(pr__confirms *confirms, uint64_t tag, bool acked, pr__confirm_sink sink,
                       void *user)
{
    pr__confirm_entry *entry = pr__confirms_at(confirms, tag);
    if (entry->settled)
        return;
    entry->settled = true;
    tell(confirms, entry,
         entry->return_code != 0 ? PR_SUBMIT_RETURNED
         : acked                 ? PR_SUBMIT_CONFIRMED
                                 : PR_SUBMIT_REFUSED,
         sink, user);
}

bool pr__confirms_settle(pr__confirms *confirms, uint64_t tag, bool multiple, bool acked,
                         pr__confirm_sink sink, void *user)
{
    if (multiple && tag == 0)
        tag = confirms->sent - 1; /* all so far */
    if (tag >= confirms->sent || tag < confirms->confirmed)
        return false;
    for (uint64_t at = multiple ? confirms->confirmed : tag; at <= tag; at++)
        settle_one(confirms, at, acked, sink, user);
    while (confirms->confirmed < confirms->sent &&
           pr__confirms_at(confirms, confirms->confirmed)->settled)
        confirms->confirmed++;
    return true;
}

void pr__confirms_expire(pr__confirms *confirms, int64_t sent_before_us, pr__confirm_sink sink,
                         void *user)
{
    for (uint64_t tag = confirms->confirmed; tag < confirms->sent; tag++) {
        pr__confirm_entry *entry = pr__confirms_at(confirms, tag);
        if (entry->sent_at_us >= sent_before_us)
            break; /* they were sent in this order */
        if (!entry->settled)
            tell(confirms, entry, entry->return_code ? PR_SUBMIT_RETURNED : PR_SUBMIT_LOST, sink,
                 user);
    }
}

void pr__confirms_reset(pr__confirms *confirms, pr__confirm_sink sink, void *user)
{
    for (uint64_t tag = confirms->confirmed; tag < confirms->sent; tag++) {
        pr__confirm_entry *entry = pr__confirms_at(confirms, tag);
        if (!entry->settled)
            tell(confirms, entry, entry->return_code ? PR_SUBMIT_RETURNED : PR_SUBMIT_LOST, sink,
                 user);
    }
    confirms->confirmed = confirms->sent = 1;
}
