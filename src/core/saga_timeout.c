/*
 * Timeouts of sagas: delayed messages that carry the instance and a token, and the list of the open
 * tokens in the instance's row.
 *
 * Keeps: a timeout acts only while its token is in the list, so that cancelling needs no look for
 * its message; what is in the list and the message that belongs to it commit together.
 * Must not know: stores, when a timeout arrives.
 */
#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "core/json.h"
#include "core/saga.h"

#define ORIGIN       PR_SAGA_ORIGIN
#define DELAY_MS_MAX (INT64_C(366) * 24 * 3600 * 1000 * 100) /* a century */

static const pr_field body_fields[] = {
    {.name = "saga", .kind = PR_FIELD_TEXT, .offset = offsetof(pr__saga_timeout_body, saga)},
    {.name = "key", .kind = PR_FIELD_TEXT, .offset = offsetof(pr__saga_timeout_body, key)},
    {.name = "instance",
     .kind = PR_FIELD_UUID,
     .offset = offsetof(pr__saga_timeout_body, instance)},
    {.name = "token", .kind = PR_FIELD_UUID, .offset = offsetof(pr__saga_timeout_body, token)},
    {.name = "name", .kind = PR_FIELD_TEXT, .offset = offsetof(pr__saga_timeout_body, name)},
    {.name = "version", .kind = PR_FIELD_INT64, .offset = offsetof(pr__saga_timeout_body, version)},
    {.name = NULL},
};

pr_contract pr__saga_timeout_contract(const char *type)
{
    return (pr_contract){.size = (uint32_t)sizeof(pr_contract),
                         .type_version = 1,
                         .type = type,
                         .kind = PR_CONTRACT_COMMAND,
                         .fields = body_fields,
                         .object_size = sizeof(pr__saga_timeout_body)};
}

const pr_saga_timeout *pr__saga_timeout_find(const pr_saga *saga, const char *name)
{
    for (size_t i = 0; name && saga->timeout.type && i < saga->type.timeout_count; i++) {
        if (strcmp(saga->type.timeouts[i].name, name) == 0)
            return &saga->type.timeouts[i];
    }
    return NULL;
}

/* ---- the list ---- */

static bool read_open(json_t *value, pr__saga_open *open)
{
    const char *name = json_string_value(json_object_get(value, "name"));
    const char *token = json_string_value(json_object_get(value, "token"));
    json_t *due = json_object_get(value, "due_at");
    if (!name || strlen(name) >= sizeof open->name || !token || !pr__uuid_valid(token) ||
        !json_is_integer(due))
        return false;
    pr__format(open->name, sizeof open->name, "%s", name);
    pr__format(open->token, sizeof open->token, "%s", token);
    open->due_at_us = json_integer_value(due);
    return true;
}

pr_status pr__saga_open_read(pr_saga_step *step, pr_error *err)
{
    const char *text = step->row.timeouts ? step->row.timeouts : "";
    step->open_count = 0;
    if (strcmp(text, "[]") == 0)
        return PR_OK;
    AUTO(json_t) list = NULL;
    pr_error local = PR_ERROR_INIT;
    pr_status status =
        pr__json_load(text, strlen(text), ORIGIN, "its open timeouts", &list, &local);
    if (status == PR_E_NOMEM)
        return pr__fail_nomem(err, ORIGIN);
    bool good =
        status == PR_OK && json_is_array(list) && json_array_size(list) <= PR_SAGA_TIMEOUTS_MAX;
    for (size_t i = 0; good && i < json_array_size(list); i++)
        good = read_open(json_array_get(list, i), &step->open[step->open_count++]);
    if (good)
        return PR_OK;
    return pr__fail(err, PR_E_CONTENT, ORIGIN,
                    "the row of saga '%s', key '%s', instance %s is damaged: its open timeouts "
                    "cannot be read; it was left as it is",
                    step->key.saga_type, step->key.correlation_key, step->row.instance_id);
}

const char *pr__saga_open_write(pr_saga_step *step)
{
    if (step->open_count == 0)
        return "[]";
    AUTO_BUFFER buffer = PR_BUFFER_INIT;
    pr__json json;
    pr__json_init(&json, &buffer);
    pr__json_array_begin(&json);
    for (uint32_t i = 0; i < step->open_count; i++) {
        pr__json_object_begin(&json);
        pr__json_key(&json, "name");
        pr__json_text(&json, step->open[i].name);
        pr__json_key(&json, "token");
        pr__json_text(&json, step->open[i].token);
        pr__json_key(&json, "due_at");
        pr__json_int(&json, step->open[i].due_at_us);
        pr__json_object_end(&json);
    }
    pr__json_array_end(&json);
    return pr__arena_strdup(step->arena, pr__buffer_text(&buffer));
}

static void remove_at(pr_saga_step *step, uint32_t index)
{
    step->open_count--;
    memmove(&step->open[index], &step->open[index + 1],
            (step->open_count - index) * sizeof step->open[0]);
}

bool pr__saga_open_close(pr_saga_step *step, const char *token)
{
    for (uint32_t i = 0; i < step->open_count; i++) {
        if (strcmp(step->open[i].token, token) == 0) {
            remove_at(step, i);
            return true;
        }
    }
    return false;
}

void pr__saga_open_close_all(pr_saga_step *step)
{
    for (; step->open_count > 0; step->open_count--)
        step->counted.timeouts_cancelled++;
}

/* Its place in the list, or open_count. */
static uint32_t find_open(const pr_saga_step *step, const char *name)
{
    uint32_t i = 0;
    while (i < step->open_count && strcmp(step->open[i].name, name) != 0)
        i++;
    return i;
}

bool pr_saga_timeout_cancel(pr_saga_step *step, const char *name)
{
    if (!step || !name || find_open(step, name) == step->open_count)
        return false;
    remove_at(step, find_open(step, name));
    step->counted.timeouts_cancelled++;
    return true;
}

/* ---- arming ---- */

static pr_status send(pr_saga_step *step, const pr__saga_open *open, pr_error *err)
{
    const pr_saga *saga = step->saga;
    pr__saga_timeout_body body = {.saga = saga->type.name,
                                  .key = step->key.correlation_key,
                                  .name = open->name,
                                  .version = step->row.version + 1};
    memcpy(body.token, open->token, sizeof body.token);
    pr__format(body.instance, sizeof body.instance, "%s", pr__saga_step_instance(step));
    void *bytes = NULL;
    size_t size = 0;
    TRY(pr_contract_encode(&saga->timeout, &body, &bytes, &size, err));
    /* its key is the instance's, so that it stays in order with what else is sent under it */
    pr_message message =
        PR_MESSAGE(.type = saga->timeout.type, .type_version = 1,
                   .destination = saga->type.timeout_destination, .key = step->key.correlation_key,
                   .tenant = step->key.tenant, .body = bytes, .body_size_bytes = size,
                   .deliver_at_us = open->due_at_us);
    pr_status status = pr_unit_enqueue(step->unit, &message, NULL, err);
    pr_free(bytes);
    return status;
}

pr_status pr_saga_timeout_set(pr_saga_step *step, const char *name, int64_t delay_ms, pr_error *err)
{
    if (!step)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "step is NULL");
    if (!pr__saga_timeout_find(step->saga, name))
        return pr__fail(err, PR_E_INVALID, ORIGIN, "saga '%s' has no timeout '%s'",
                        step->saga->type.name, name ? name : "");
    if (delay_ms < 0 || delay_ms > DELAY_MS_MAX)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "delay_ms is %lld, must be 0 to a century",
                        (long long)delay_ms);
    bool replaces = find_open(step, name) < step->open_count;
    if (step->open_count == PR_SAGA_TIMEOUTS_MAX && !replaces)
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "saga '%s', key '%s' has %d open timeouts already",
                        step->saga->type.name, step->key.correlation_key, PR_SAGA_TIMEOUTS_MAX);
    pr__saga_open open = {.due_at_us = step->row.now_us + delay_ms * 1000};
    pr__format(open.name, sizeof open.name, "%s", name);
    pr__saga_new_id(step->unit->store, open.token);
    TRY(send(step, &open, err));
    PR_FAULT("saga.after_timeout");
    (void)pr_saga_timeout_cancel(step,
                                 name); /* only now: one that stands is not lost by a failure */
    step->open[step->open_count++] = open;
    step->counted.timeouts_set++;
    return PR_OK;
}

/* ---- the last messages ---- */

static void write_message(pr__json *json, const char *id, const char *type)
{
    pr__json_object_begin(json);
    pr__json_key(json, "id");
    pr__json_text(json, id);
    pr__json_key(json, "type");
    pr__json_text(json, type);
    pr__json_object_end(json);
}

const char *pr__saga_messages_write(pr_saga_step *step)
{
    const char *text = step->row.last_messages ? step->row.last_messages : "[]";
    if (!step->message_id)
        return text;
    AUTO(json_t) list = NULL;
    AUTO_BUFFER buffer = PR_BUFFER_INIT;
    pr__json json;
    size_t count = 0;
    /* for people only: what was damaged by hand begins anew */
    if (strcmp(text, "[]") != 0 &&
        pr__json_load(text, strlen(text), ORIGIN, "its last messages", &list, NULL) == PR_OK)
        count = json_array_size(list);
    pr__json_init(&json, &buffer);
    pr__json_array_begin(&json);
    for (size_t i = count < PR_SAGA_MESSAGES_MAX ? 0 : count - PR_SAGA_MESSAGES_MAX + 1; i < count;
         i++) {
        json_t *value = json_array_get(list, i);
        write_message(&json, json_string_value(json_object_get(value, "id")),
                      json_string_value(json_object_get(value, "type")));
    }
    write_message(&json, step->message_id, step->message_type);
    pr__json_array_end(&json);
    return pr__arena_strdup(step->arena, pr__buffer_text(&buffer));
}
