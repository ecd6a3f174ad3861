/*
 * Names of exchanges, queues and routing keys.
 *
 * Keeps: no two things have one name; a name that would be cut is an error.
 *
 *   topic/urn:message:<ns>:<name>     exchange <prefix><ns>, key <ns>.<name>.v<version>
 *   in/<endpoint>                     default exchange, key <prefix><endpoint>
 *   in/<urn>/<endpoint>               exchange <prefix>in:<endpoint>, key <urn>
 *   reply/<id>                        default exchange, key <prefix>reply:<id>
 *
 * Must not know: connections.
 */
#include "transport/amqp/names.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/text.h"

#define ORIGIN      "amqp.names"
#define TYPE_PREFIX "urn:message:"

pr_status pr__amqp_prefix_check(const char *prefix, pr_error *err)
{
    size_t size = strlen(prefix);
    if (size > PR__AMQP_PREFIX_MAX || !pr__utf8_valid(prefix, size))
        return pr__fail(err, PR_E_INVALID, ORIGIN, "prefix has %zu bytes, at most %d of UTF-8",
                        size, PR__AMQP_PREFIX_MAX);
    if (pr__text_starts_with(prefix, "amq."))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "prefix begins with 'amq.', which is the broker's");
    for (const char *at = prefix; *at != '\0'; at++) {
        if ((unsigned char)*at <= ' ' || *at == 0x7F)
            return pr__fail(err, PR_E_INVALID, ORIGIN, "prefix has a space or a control character");
    }
    return PR_OK;
}

/* Join pieces into a name; false when it would be cut. */
static bool join(char out[PR__AMQP_NAME_SIZE], const char *a, size_t a_size, const char *b,
                 size_t b_size, const char *c)
{
    size_t c_size = strlen(c);
    if (a_size + b_size + c_size >= PR__AMQP_NAME_SIZE)
        return false;
    memcpy(out, a, a_size);
    memcpy(out + a_size, b, b_size);
    memcpy(out + a_size + b_size, c, c_size + 1);
    return true;
}

static pr_status too_long(const char *what, pr_error *err)
{
    return pr__fail(err, PR_E_LIMIT, ORIGIN, "the %s has more than 255 bytes with its prefix",
                    what);
}

/* The parts of a URN; only their ends are looked for, core knows the grammar. */
static pr_status split_type(const char *type, size_t size, pr__span *ret_space, pr__span *ret_name,
                            pr_error *err)
{
    static const size_t skip = sizeof(TYPE_PREFIX) - 1;
    const char *colon = NULL;
    if (size > skip && memcmp(type, TYPE_PREFIX, skip) == 0)
        colon = memchr(type + skip, ':', size - skip);
    if (!colon || colon == type + skip || colon + 1 == type + size)
        return pr__fail(err, PR_E_CONTENT, ORIGIN,
                        "the type '%.*s' is not urn:message:<namespace>:<name>",
                        size < 200 ? (int)size : 200, type);
    *ret_space = (pr__span){type + skip, (size_t)(colon - type - (ptrdiff_t)skip)};
    *ret_name = (pr__span){colon + 1, (size_t)(type + size - colon - 1)};
    return PR_OK;
}

static pr_status topic_target(pr__span type, const char *prefix, const char *version,
                              pr__amqp_target *target, pr_error *err)
{
    pr__span space = {NULL, 0}, name = {NULL, 0};
    char tail[24];
    TRY(split_type(type.text, type.size, &space, &name, err));
    if (!join(target->exchange, prefix, strlen(prefix), space.text, space.size, ""))
        return too_long("exchange of its namespace", err);
    pr__format(tail, sizeof(tail), ".%s", version);
    if (space.size + 1 + name.size + strlen(tail) >= PR__AMQP_NAME_SIZE)
        return too_long("routing key", err);
    char *at = target->key;
    memcpy(at, space.text, space.size);
    at[space.size] = '.';
    memcpy(at + space.size + 1, name.text, name.size);
    memcpy(at + space.size + 1 + name.size, tail, strlen(tail) + 1);
    return PR_OK;
}

pr_status pr__amqp_binding_of(const char *type, const char *prefix, pr__amqp_target *ret_binding,
                              pr_error *err)
{
    ret_binding->mandatory = false;
    return topic_target((pr__span){type, strlen(type)}, prefix, "*", ret_binding, err);
}

pr_status pr__amqp_target_of(const pr_message *message, const char *scheme, const char *prefix,
                             pr__amqp_target *ret_target, pr_error *err)
{
    pr__route route;
    TRY(pr__route_parse(message->destination, &route, err));
    if (!pr__span_equal(route.scheme, scheme))
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "the destination is of another transport");
    size_t prefix_size = strlen(prefix);
    ret_target->mandatory = true;
    ret_target->exchange[0] = '\0';
    switch (route.kind) {
    case PR__ROUTE_TOPIC: {
        char version[16];
        pr__format(version, sizeof(version), "v%u",
                   message->type_version ? (unsigned)message->type_version : 1u);
        ret_target->mandatory = !pr__route_unrouted_ok(message);
        return topic_target(route.type, prefix, version, ret_target, err);
    }
    case PR__ROUTE_IN: {
        bool fits = true;
        if (route.type.text) {
            fits = route.type.size < PR__AMQP_NAME_SIZE;
            if (fits)
                join(ret_target->key, route.type.text, route.type.size, "", 0, "");
            fits = fits &&
                   join(ret_target->exchange, prefix, prefix_size, "in:", 3, route.endpoint.text);
        } else {
            fits = join(ret_target->key, prefix, prefix_size, route.endpoint.text,
                        route.endpoint.size, "");
        }
        return fits ? PR_OK : too_long("name of the endpoint", err);
    }
    case PR__ROUTE_REPLY:
        if (!join(ret_target->key, prefix, prefix_size, "reply:", 6, route.endpoint.text))
            return too_long("reply address", err);
        return PR_OK;
    }
    return PR_OK;
}

pr_status pr__amqp_names_of(const pr_subscribe_options *options, const char *prefix,
                            pr__amqp_names *ret_names, pr_error *err)
{
    const char *endpoint = options->endpoint;
    size_t size = strlen(endpoint);
    size_t prefix_size = strlen(prefix);
    *ret_names = (pr__amqp_names){.queue = ""};
    if (options->temporary) {
        if (!join(ret_names->queue, prefix, prefix_size, "reply:", 6, endpoint))
            return too_long("reply queue", err);
        return PR_OK;
    }
    bool is_dead = size >= 5 && strcmp(endpoint + size - 5, ".dead") == 0;
    if (is_dead || pr__text_starts_with(endpoint, "reply:") ||
        (prefix_size == 0 && pr__text_starts_with(endpoint, "amq.")))
        return pr__fail(err, PR_E_CONTENT, ORIGIN,
                        "no endpoint '%s' on RabbitMQ: names that end in .dead or begin with "
                        "reply: or amq. are others'",
                        endpoint);
    if (!join(ret_names->queue, prefix, prefix_size, endpoint, size, "") ||
        !join(ret_names->dead, prefix, prefix_size, endpoint, size, ".dead") ||
        !join(ret_names->exchange, prefix, prefix_size, "in:", 3, endpoint))
        return too_long("name of the endpoint", err);
    return PR_OK;
}

static int compare_types(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

pr_status pr__amqp_types_text(const pr_subscribe_options *options, const char *queue,
                              char out[PR__AMQP_NAME_SIZE], pr_error *err)
{
    size_t count = options->type_count;
    AUTO(void) sorted_block = pr__alloc_array(count + 1, sizeof(const char *));
    if (!sorted_block)
        return pr__fail_nomem(err, ORIGIN);
    const char **sorted = sorted_block;
    if (count > 0) {
        memcpy(sorted, options->types, count * sizeof(*sorted));
        qsort(sorted, count, sizeof(*sorted), compare_types);
    }
    AUTO_BUFFER text = PR_BUFFER_INIT;
    pr__buffer_printf(&text, "%s takes", queue);
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && strcmp(sorted[i], sorted[i - 1]) == 0)
            continue;
        bool ours = pr__text_starts_with(sorted[i], TYPE_PREFIX);
        pr__buffer_printf(&text, " %s", sorted[i] + (ours ? strlen(TYPE_PREFIX) : 0));
    }
    if (text.failed)
        return pr__fail_nomem(err, ORIGIN);
    if (text.size < PR__AMQP_NAME_SIZE) {
        pr__format(out, PR__AMQP_NAME_SIZE, "%s", text.data);
        return PR_OK;
    }
    uint8_t hash[PR_CONTENT_HASH_SIZE];
    char hex[PR_CONTENT_HASH_TEXT_SIZE];
    pr__hash_bytes(text.data, text.size, hash);
    pr__hash_text(hash, hex);
    pr__format(out, PR__AMQP_NAME_SIZE, "%.*s takes hash:%s",
               (int)pr__utf8_cut(queue, strlen(queue), 200), queue, hex);
    return PR_OK;
}
