/*
 * The chain of an endpoint's middleware.
 */
#ifndef PR_CORE_MIDDLEWARE_H
#define PR_CORE_MIDDLEWARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/middleware.h>

#include "base/memory.h"

#define PR__MIDDLEWARE_MAX 32

typedef struct pr__chain {
    const pr_middleware *items; /* the outermost first */
    uint32_t count;
    bool has_unit;
    bool has_inbox;
} pr__chain;

/* The rest of a chain, from `index` on. */
struct pr_next {
    const pr__chain *chain;
    uint32_t index;
};

/* Check a list and copy it into the arena; NULL: unit and inbox. INVALID says which one is wrong
   and why. */
pr_status pr__chain_make(const pr_middleware *list, size_t count, bool leased, pr__arena *arena,
                         pr__chain *ret_chain, pr_error *err);

/* ---- endpoint_chain.c: the two that every endpoint knows, and what stands innermost ---- */

/* Does the inbox come next? */
bool pr__next_is_inbox(const pr_next *next);
/* Does the handler? */
bool pr__next_is_handler(const pr_next *next);

pr_handled pr__unit_invoke(void *user, pr_scope *scope, pr_next *next);
pr_handled pr__inbox_invoke(void *user, pr_scope *scope, pr_next *next);
pr_handled pr__handler_invoke(pr_scope *scope);

#endif
