/*
 * Where in an object a field is: 'lines[3].price', and at which byte of a JSON text.
 */
#ifndef PR_CORE_FIELD_PATH_H
#define PR_CORE_FIELD_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/error.h>

/* Lives on the stack, one a level; written out for an error only. */
typedef struct pr__field_path {
    const struct pr__field_path *outer;
    const char *name; /* NULL for an element of a list */
    size_t index;
    uint32_t depth;
} pr__field_path;

/* "field '<path>' <what>", with status. */
pr_status pr__field_fail(const pr__field_path *path, pr_status status, pr_error *err,
                         const char *what);

/* The same, with the byte of valid JSON text where the field's value stands, or, when it is
   missing, the object that should have it. */
pr_status pr__field_fail_at(const pr__field_path *path, const char *text, size_t size,
                            pr_status status, pr_error *err, const char *what);

#endif
