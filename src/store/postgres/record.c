/*
 * Reading rows as records.
 *
 * Owns: which columns a record is made of, for each place where a message may stand.
 * Invariant: a row that cannot be read as a message is a record with the reason beside it, never
 * the error of a whole page. Bodies are read only where they were asked for.
 */
#include "store/postgres/record.h"

#include "base/error.h"
#include "base/text.h"
#include "port/state.h"
#include "store/postgres/value.h"

#define ORIGIN "postgres.operations"

int64_t pr__pg_records_body_max(const pr__pg_records *records)
{
    return records->with_body ? (int64_t)records->store->base.body_size_max : -1;
}

/* NULL when out of memory. */
static pr__pg_record_node *append(pr__pg_records *records)
{
    pr__pg_record_node *node = pr__arena_alloc(records->arena, sizeof *node);
    if (!node)
        return NULL;
    node->record.size = (uint32_t)sizeof node->record;
    if (records->last)
        records->last->next = node;
    else
        records->first = node;
    records->last = node;
    records->count++;
    return node;
}

/* The message, with its destination resolved. */
static pr_status read_message(pr__pg_records *records, const PGresult *result, int row,
                              pr_record *record, pr_error *err)
{
    uint64_t size_max = records->with_body ? records->store->base.body_size_max : UINT64_MAX;
    TRY(pr__pg_read_message(result, row, 0, records->arena, size_max, &record->message,
                            &record->unreadable, err));
    record->body_size_bytes = record->message.body_size_bytes;
    if (!record->message.body)
        record->message.body_size_bytes = 0;
    if (record->message.destination)
        return PR_OK;
    record->message.destination = pr__pg_topic(
        records->arena, records->store->settings.default_transport, record->message.type);
    return record->message.destination ? PR_OK : pr__fail_nomem(err, ORIGIN);
}

static pr_status add(pr__pg_records *records, const PGresult *result, int row, pr_error *err)
{
    pr__pg_record_node *node = append(records);
    if (!node)
        return pr__fail_nomem(err, ORIGIN);
    pr_record *record = &node->record;
    bool failed = false;
    int at = PR__PG_MESSAGE_SELECT_COUNT;
    TRY(read_message(records, result, row, record, err));
    if (!pr__state_parse(pr__pg_value_text(result, row, at++), &record->state))
        return pr__fail(err, PR_E_BACKEND, ORIGIN, "a row is in no known state");
    record->attempts = (uint32_t)pr__pg_value_int(result, row, at++);
    record->takeovers = (uint32_t)pr__pg_value_int(result, row, at++);
    record->next_attempt_at_us = pr__pg_value_instant(result, row, at++);
    record->lock_token = pr__pg_value_copy(result, row, at++, records->arena, &failed);
    record->locked_until_us = pr__pg_value_instant(result, row, at++);
    record->owner = pr__pg_value_copy(result, row, at++, records->arena, &failed);
    record->last_error = pr__pg_value_copy(result, row, at++, records->arena, &failed);
    record->first_failed_at_us = pr__pg_value_instant(result, row, at++);
    record->operator_hold = pr__pg_value_int(result, row, at++) != 0;
    record->reader = pr__pg_value_int(result, row, at++);
    record->log_id = pr__pg_value_int(result, row, at++);
    int64_t lane = pr__pg_value_int(result, row, at++);
    record->lane = lane < 0 ? 0 : (uint32_t)lane;
    record->consumer = pr__pg_value_copy(result, row, at++, records->arena, &failed);
    if (!PQgetisnull(result, row, at))
        record->unreadable = pr__pg_value_copy(result, row, at, records->arena, &failed);
    at++;
    record->box =
        pr__pg_value_int(result, row, at++) == PR_BOX_INBOX ? PR_BOX_INBOX : PR_BOX_OUTBOX;
    node->place = pr__pg_value_int(result, row, at);
    if (record->state == PR_STATE_DELAYED) {
        record->reader = PR_READER_RELAY;
        record->message.deliver_at_us = record->next_attempt_at_us;
    }
    return failed ? pr__fail_nomem(err, ORIGIN) : PR_OK;
}

pr_status pr__pg_records_add(pr__pg_records *records, const PGresult *result, pr_error *err)
{
    for (int row = 0; row < PQntuples(result); row++)
        TRY(add(records, result, row, err));
    return PR_OK;
}

pr_status pr__pg_records_add_mark(pr__pg_records *records, const PGresult *result, int row,
                                  pr_error *err)
{
    pr__pg_record_node *node = append(records);
    bool failed = !node;
    if (failed)
        return pr__fail_nomem(err, ORIGIN);
    pr_record *record = &node->record;
    record->box = PR_BOX_INBOX;
    record->state = PR_STATE_PUBLISHED;
    record->message.size = (uint32_t)sizeof record->message;
    record->message.tenant = pr__pg_value_copy(result, row, 0, records->arena, &failed);
    record->consumer = pr__pg_value_copy(result, row, 1, records->arena, &failed);
    record->message.id = pr__pg_value_copy(result, row, 2, records->arena, &failed);
    record->settled_at_us = pr__pg_value_instant(result, row, 3);
    return failed ? pr__fail_nomem(err, ORIGIN) : PR_OK;
}

uint32_t pr__pg_records_deliver(const pr__pg_records *records, uint32_t max,
                                pr_record_callback callback, void *user)
{
    uint32_t count = 0;
    for (const pr__pg_record_node *node = records->first; node && count < max; node = node->next) {
        count++;
        if (!callback(user, &node->record))
            break;
    }
    return count;
}
