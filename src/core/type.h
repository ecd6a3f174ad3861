/*
 * The name of a message type: `urn:message:<namespace>:<name>`.
 */
#ifndef PR_CORE_TYPE_H
#define PR_CORE_TYPE_H

#include <stddef.h>
#include <stdint.h>

#include <postroom/error.h>

#define PR_TYPE_PREFIX "urn:message:"

typedef struct pr__type_parts {
    const char *name_space; /* points into the type */
    size_t name_space_size;
    const char *name; /* to the end of the type */
    size_t name_size;
} pr__type_parts;

/* CONTENT: malformed, the text says how; LIMIT: longer than PR_TYPE_SIZE_MAX. ret_parts may be
   NULL. */
pr_status pr__type_check(const char *type, size_t size, pr__type_parts *ret_parts, pr_error *err);

/* Schema version of a message or contract: 0 means 1; LIMIT beyond what every store can hold. */
#define PR_TYPE_VERSION_MAX 2147483647u
pr_status pr__type_version_check(uint32_t version, pr_error *err);
static inline uint32_t pr__type_version(uint32_t version)
{
    return version ? version : 1;
}

#endif
