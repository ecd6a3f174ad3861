/*
 * The grammar of type names.
 *
 * Owns: which characters a namespace and a name may have.
 * Keeps: a type that passed can stand in an address ('/'), a routing key ('*', '#') and a command
 * line without quoting, and says where its namespace ends (':').
 * Must not know: which types are registered.
 */
#include "core/type.h"

#include <string.h>

#include <postroom/limits.h>

#include "base/error.h"
#include "base/text.h"

#define ORIGIN "type"

/* The routing key is `<namespace>.<name>.v<version>`, a short string of AMQP 0-9-1: 255 bytes. */
_Static_assert(PR_TYPE_SIZE_MAX - (sizeof(PR_TYPE_PREFIX) - 1) + sizeof(".v2147483647") < 255,
               "a type of the longest size must fit into a routing key");

static const char forbidden[] = "/\\*#?:\"<>|`";

/* NULL when the part is right, else what is wrong with it. */
static const char *part_fault(const char *part, size_t size)
{
    if (size == 0)
        return "is empty";
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)part[i];
        if (c <= ' ' || c == 0x7F)
            return "has a space or a control character";
        if (strchr(forbidden, c))
            return "has one of / \\ * # ? : \" < > | `";
    }
    return NULL;
}

pr_status pr__type_check(const char *type, size_t size, pr__type_parts *ret_parts, pr_error *err)
{
    if (size > PR_TYPE_SIZE_MAX)
        return pr__fail(err, PR_E_LIMIT, ORIGIN,
                        "type has %zu bytes, at most %d, so that routing keys stay below 255", size,
                        PR_TYPE_SIZE_MAX);
    if (!pr__utf8_valid(type, size))
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "type is not valid UTF-8");
    size_t prefix_size = sizeof(PR_TYPE_PREFIX) - 1;
    if (size < prefix_size || memcmp(type, PR_TYPE_PREFIX, prefix_size) != 0)
        return pr__fail(err, PR_E_CONTENT, ORIGIN,
                        "type '%.*s' is not urn:message:<namespace>:<name>", (int)size, type);
    pr__type_parts parts = {.name_space = type + prefix_size};
    const char *end = type + size;
    const char *colon = memchr(parts.name_space, ':', size - prefix_size);
    if (!colon)
        return pr__fail(err, PR_E_CONTENT, ORIGIN,
                        "type '%.*s' has no name: urn:message:<namespace>:<name>", (int)size, type);
    parts.name_space_size = (size_t)(colon - parts.name_space);
    parts.name = colon + 1;
    parts.name_size = (size_t)(end - parts.name);
    const char *fault = part_fault(parts.name_space, parts.name_space_size);
    if (fault)
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "the namespace of type '%.*s' %s", (int)size,
                        type, fault);
    fault = part_fault(parts.name, parts.name_size);
    if (fault)
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "the name of type '%.*s' %s", (int)size, type,
                        fault);
    if (ret_parts)
        *ret_parts = parts;
    return PR_OK;
}

pr_status pr__type_version_check(uint32_t version, pr_error *err)
{
    if (version > PR_TYPE_VERSION_MAX)
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "type_version is %u, at most %u",
                        (unsigned)version, (unsigned)PR_TYPE_VERSION_MAX);
    return PR_OK;
}
