/*
 * JSON of what operations tell.
 *
 * Owns: the names of the fields. They are an interface: only ever added to.
 * Invariant: a body appears only where it was asked for; absent values are null, so that every
 * object of a kind has the same fields.
 * Must not know: where it is printed.
 */
#include "ops/render.h"

#include <string.h>

#include "base/text.h"
#include "core/json.h"
#include "port/state.h"

static void text(pr__json *json, const char *name, const char *value)
{
    pr__json_member_text(json, name, value && *value ? value : NULL);
}

static void instant(pr__json *json, const char *name, int64_t instant_us)
{
    pr__json_key(json, name);
    if (instant_us == 0)
        pr__json_null(json);
    else
        pr__json_instant(json, instant_us);
}

static bool is_text(const pr_message *message)
{
    const char *type = message->content_type;
    return (pr__text_empty(type) || pr__text_starts_with(type, PR_CONTENT_TYPE_JSON) ||
            pr__text_starts_with(type, "text/")) &&
           pr__utf8_valid(message->body, message->body_size_bytes);
}

static void render_body(pr__json *json, const pr_message *message)
{
    bool plain = message->body_size_bytes == 0 || is_text(message);
    pr__json_key(json, plain ? "body" : "body_base64");
    if (message->body_size_bytes == 0)
        pr__json_text(json, "");
    else if (plain)
        pr__json_text_n(json, message->body, message->body_size_bytes);
    else
        pr__json_base64(json, message->body, message->body_size_bytes);
}

static void render_message(pr__json *json, const pr_message *message)
{
    text(json, "type", message->type);
    pr__json_member_uint(json, "type_version", message->type_version);
    text(json, "content_type", message->content_type);
    text(json, "destination", message->destination);
    text(json, "source", message->source);
    text(json, "key", message->key);
    text(json, "tenant", message->tenant);
    text(json, "correlation_id", message->correlation_id);
    text(json, "causation_id", message->causation_id);
    text(json, "traceparent", message->traceparent);
    text(json, "tracestate", message->tracestate);
    text(json, "headers", message->headers);
    instant(json, "occurred_at", message->occurred_at_us);
    instant(json, "expires_at", message->expires_at_us);
    instant(json, "deliver_at", message->deliver_at_us);
}

void pr__render_record(pr__json *json, const pr_record *record, bool with_body)
{
    pr__json_object_begin(json);
    text(json, "message_id", record->message.id);
    text(json, "box", pr__box_text(record->box));
    text(json, "state", pr__state_text(record->state));
    if (record->box == PR_BOX_INBOX) {
        text(json, "consumer", record->consumer);
    } else {
        pr__json_member_uint(json, "reader", (uint64_t)record->reader);
        pr__json_member_uint(json, "log_id", (uint64_t)record->log_id);
        pr__json_member_uint(json, "lane", record->lane);
    }
    render_message(json, &record->message);
    pr__json_member_uint(json, "body_size_bytes", record->body_size_bytes);
    pr__json_member_uint(json, "attempts", record->attempts);
    pr__json_member_uint(json, "takeovers", record->takeovers);
    instant(json, "next_attempt_at", record->next_attempt_at_us);
    instant(json, "locked_until", record->locked_until_us);
    text(json, "lock_token", record->lock_token);
    text(json, "owner", record->owner);
    text(json, "last_error", record->last_error);
    instant(json, "first_failed_at", record->first_failed_at_us);
    instant(json, "settled_at", record->settled_at_us);
    pr__json_member_bool(json, "operator_hold", record->operator_hold);
    text(json, "unreadable", record->unreadable);
    if (with_body)
        render_body(json, &record->message);
    pr__json_object_end(json);
}

/* done: what the last state is called there; an inbox publishes nothing. */
static void render_counts(pr__json *json, const char *name, const uint64_t counts[PR_STATE_COUNT],
                          const char *done)
{
    pr__json_key(json, name);
    pr__json_object_begin(json);
    for (int i = PR_STATE_PENDING; i < PR_STATE_COUNT; i++)
        pr__json_member_uint(json, i == PR_STATE_PUBLISHED ? done : pr__state_text((pr_state)i),
                             counts[i]);
    pr__json_object_end(json);
}

void pr__render_status(pr__json *json, const pr_status_report *report)
{
    pr__json_object_begin(json);
    text(json, "store", report->store);
    pr__json_member_uint(json, "schema_version", report->schema_version);
    pr__json_member_uint(json, "lanes", report->lanes);
    pr__json_member_uint(json, "relays_seen", report->relays_seen);
    render_counts(json, "outbox", report->outbox, "published");
    render_counts(json, "inbox", report->inbox, "handled");
    pr__json_member_uint(json, "inbox_marks", report->inbox_marks);
    pr__json_member_int(json, "oldest_pending_age_ms", report->oldest_pending_age_ms);
    pr__json_member_int(json, "journal_rows", report->journal_rows);
    pr__json_object_end(json);
}

void pr__render_explanation(pr__json *json, const char *message_id,
                            const pr_explanation *explanation)
{
    pr__json_object_begin(json);
    text(json, "message_id", message_id);
    text(json, "box", pr__box_text(explanation->box));
    text(json, "consumer", explanation->consumer);
    text(json, "state", pr__state_text(explanation->state));
    text(json, "summary", explanation->summary);
    text(json, "blocker_id", explanation->blocker_id);
    text(json, "owner", explanation->owner);
    pr__json_member_int(json, "lease_left_ms", explanation->lease_left_ms);
    instant(json, "next_attempt_at", explanation->next_attempt_at_us);
    pr__json_member_uint(json, "attempts", explanation->attempts);
    pr__json_object_end(json);
}

/* ---- sagas ---- */

static void render_state(pr__json *json, const pr_saga_record *record)
{
    const char *state = record->state ? record->state : "";
    size_t size = record->state ? (size_t)record->state_size_bytes : 0;
    AUTO(json_t) value = NULL;
    bool plain = pr__json_load(state, size, "render", "it", &value, NULL) == PR_OK;
    pr__json_key(json, "state");
    if (plain)
        pr__json_raw(json, state, size);
    else
        pr__json_null(json);
    pr__json_key(json, "state_base64");
    if (plain || size == 0)
        pr__json_null(json);
    else
        pr__json_base64(json, state, size);
}

/* The open timeouts, with their instants as people read them. */
static void render_timeouts(pr__json *json, const char *timeouts)
{
    AUTO(json_t) list = NULL;
    pr__json_key(json, "timeouts");
    pr__json_array_begin(json);
    if (pr__json_load(timeouts, strlen(timeouts), "render", "it", &list, NULL) == PR_OK) {
        for (size_t i = 0; i < json_array_size(list); i++) {
            json_t *one = json_array_get(list, i);
            pr__json_object_begin(json);
            text(json, "name", json_string_value(json_object_get(one, "name")));
            text(json, "token", json_string_value(json_object_get(one, "token")));
            instant(json, "due_at", json_integer_value(json_object_get(one, "due_at")));
            pr__json_object_end(json);
        }
    }
    pr__json_array_end(json);
}

void pr__render_saga(pr__json *json, const pr_saga_record *record, bool with_state)
{
    pr__json_object_begin(json);
    text(json, "saga_type", record->saga_type);
    text(json, "key", record->key);
    text(json, "tenant", record->tenant);
    text(json, "instance_id", record->instance_id);
    text(json, "phase", record->completed_at_us ? "completed" : "running");
    pr__json_member_uint(json, "version", (uint64_t)record->version);
    pr__json_member_uint(json, "state_version", record->state_version);
    pr__json_member_uint(json, "state_size_bytes", record->state_size_bytes);
    render_timeouts(json, record->timeouts);
    pr__json_key(json, "last_messages");
    pr__json_raw(json, record->last_messages, strlen(record->last_messages));
    text(json, "lease_owner", record->lease_owner);
    instant(json, "lease_until", record->lease_until_us);
    pr__json_key(json, "lease_left_ms");
    if (record->lease_until_us == 0)
        pr__json_null(json);
    else
        pr__json_int(json, record->lease_left_ms);
    instant(json, "started_at", record->started_at_us);
    instant(json, "updated_at", record->updated_at_us);
    instant(json, "completed_at", record->completed_at_us);
    text(json, "unreadable", record->unreadable);
    if (with_state)
        render_state(json, record);
    pr__json_object_end(json);
}
