/*
 * Writing the subject of an audit row.
 *
 * Invariant: what is not given is left out, so that the text says what the operator said.
 */
#include "port/audit.h"

#include "base/json_writer.h"

static void write_text(pr__json *json, const char *name, const char *value)
{
    if (value)
        pr__json_member_text(json, name, value);
}

void pr__audit_subject_write(const pr__audit_subject *subject, pr__buffer *buffer)
{
    pr__json json;
    pr__json_init(&json, buffer);
    pr__json_object_begin(&json);
    write_text(&json, "box", subject->box);
    write_text(&json, "message_id", subject->message_id);
    write_text(&json, "consumer", subject->consumer);
    write_text(&json, "type", subject->type);
    write_text(&json, "destination", subject->destination);
    write_text(&json, "saga_type", subject->saga_type);
    write_text(&json, "key", subject->key);
    write_text(&json, "tenant", subject->tenant);
    if (subject->log_id)
        pr__json_member_int(&json, "log_id", subject->log_id);
    if (subject->forced) {
        pr__json_member_bool(&json, "forced", true);
    }
    pr__json_object_end(&json);
}
