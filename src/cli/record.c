/*
 * Writing records.
 *
 * Bodies are shown by `show` alone, never in lists. JSON of records is made in ops/render.
 */
#include "cli/record.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/time.h"
#include "port/state.h"

/* ---- tables ---- */

static const pr__column outbox_columns[] = {
    {"ID", false, 0},   {"STATE", false, 0},    {"TYPE", false, 0.3},  {"KEY", false, 0.1},
    {"TRIES", true, 0}, {"OCCURRED", false, 0}, {"ERROR", false, 0.2},
};
static const pr__column inbox_columns[] = {
    {"ID", false, 0},    {"STATE", false, 0}, {"CONSUMER", false, 0.1}, {"TYPE", false, 0.3},
    {"KEY", false, 0.1}, {"TRIES", true, 0},  {"OCCURRED", false, 0},   {"ERROR", false, 0.2},
};
static const pr__column dead_columns[] = {
    {"ID", false, 0},    {"BOX", false, 0},  {"CONSUMER", false, 0.1}, {"TYPE", false, 0.3},
    {"KEY", false, 0.1}, {"TRIES", true, 0}, {"OCCURRED", false, 0},   {"ERROR", false, 0.2},
};
enum { SECONDS_SIZE = 19 }; /* of an instant's text up to its seconds */

pr__table *pr__record_table(pr__record_view view)
{
    if (view == PR__VIEW_DEAD)
        return pr__table_new(dead_columns, sizeof(dead_columns) / sizeof(dead_columns[0]));
    if (view == PR__VIEW_INBOX)
        return pr__table_new(inbox_columns, sizeof(inbox_columns) / sizeof(inbox_columns[0]));
    return pr__table_new(outbox_columns, sizeof(outbox_columns) / sizeof(outbox_columns[0]));
}

void pr__record_row(pr__table *table, pr__record_view view, const pr_record *record)
{
    char attempts[24], occurred[PR_INSTANT_TEXT_SIZE] = "";
    const pr_message *message = &record->message;
    const char *why = record->unreadable ? record->unreadable : record->last_error;
    pr__format(attempts, sizeof(attempts), "%u", record->attempts);
    if (message->occurred_at_us != 0) {
        pr__instant_text(message->occurred_at_us, occurred);
        occurred[SECONDS_SIZE] = 'Z'; /* the whole of it is in show and in JSON */
        occurred[SECONDS_SIZE + 1] = '\0';
    }
    const char *outbox[] = {
        message->id, pr__state_text(record->state), message->type, message->key, attempts, occurred,
        why};
    const char *of_inbox = /* a list of the inbox tells the state, one of dead ones the box */
        view == PR__VIEW_INBOX ? pr__state_text(record->state) : pr__box_text(record->box);
    const char *others[] = {message->id,  of_inbox, record->consumer, message->type,
                            message->key, attempts, occurred,         why};
    pr__table_row(table, view == PR__VIEW_OUTBOX ? outbox : others);
}

void pr__record_print(pr__cli *cli, const pr_record *record)
{
    const pr_message *message = &record->message;
    char number[32];
    pr__print_field(cli, "id", message->id);
    pr__print_field(cli, "state", pr__state_text(record->state));
    pr__print_field(cli, "box", pr__box_text(record->box));
    pr__print_field(cli, "consumer", record->consumer);
    pr__print_field(cli, "unreadable", record->unreadable);
    pr__print_field(cli, "type", message->type);
    pr__format(number, sizeof(number), "%u", message->type_version);
    pr__print_field(cli, "version", number);
    pr__print_field(cli, "content type", message->content_type);
    pr__print_field(cli, "destination", message->destination);
    pr__print_field(cli, "source", message->source);
    pr__print_field(cli, "key", message->key);
    pr__print_field(cli, "tenant", message->tenant);
    pr__print_field(cli, "correlation id", message->correlation_id);
    pr__print_field(cli, "causation id", message->causation_id);
    pr__print_field(cli, "traceparent", message->traceparent);
    pr__print_field(cli, "tracestate", message->tracestate);
    pr__print_field(cli, "headers", message->headers);
    pr__print_instant(cli, "occurred at", message->occurred_at_us);
    pr__print_instant(cli, "expires at", message->expires_at_us);
    pr__print_instant(cli, "deliver at", message->deliver_at_us);
    pr__format(number, sizeof(number), "%u", record->attempts);
    pr__print_field(cli, "attempts", number);
    pr__print_instant(cli, "next attempt at", record->next_attempt_at_us);
    pr__print_instant(cli, "leased until", record->locked_until_us);
    pr__print_field(cli, "owner", record->owner);
    pr__print_instant(cli, "first failed at", record->first_failed_at_us);
    pr__print_field(cli, "last error", record->last_error);
    pr__print_field(cli, "operator hold", record->operator_hold ? "yes" : NULL);
    pr__format(number, sizeof(number), "%llu bytes", (unsigned long long)record->body_size_bytes);
    pr__print_field(cli, "body", number);
    pr__print_data(cli, "body", message->body, (size_t)message->body_size_bytes, "\n\r\t");
}
