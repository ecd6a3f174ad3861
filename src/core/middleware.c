/*
 * The chain of an endpoint's middleware: which lists are good, and calling the rest.
 *
 * Keeps: an inbox always stands inside a work unit, so that no mark is written outside the
 * transaction of the effect.
 * Must not know: what the work unit and the inbox do (endpoint_chain.c).
 */
#include "core/middleware.h"

#include <string.h>

#include "base/error.h"
#include "base/sized.h"
#include "base/text.h"

#define ORIGIN "endpoint"

pr_middleware pr_middleware_unit(void)
{
    return (pr_middleware)PR_MIDDLEWARE(.name = "unit", .invoke = pr__unit_invoke);
}

pr_middleware pr_middleware_inbox(void)
{
    return (pr_middleware)PR_MIDDLEWARE(.name = "inbox", .invoke = pr__inbox_invoke);
}

static pr_status check_one(const pr_middleware *item, size_t index, pr_error *err)
{
    pr_error local = PR_ERROR_INIT;
    pr_status status = pr__sized_check(item, sizeof *item, "pr_middleware", ORIGIN, &local);
    if (status == PR_OK && (!item->invoke || pr__text_empty(item->name)))
        status = pr__fail(&local, PR_E_INVALID, ORIGIN, "it needs a name and an invoke");
    if (status == PR_OK && item->flags != 0)
        status = pr__fail(&local, PR_E_INVALID, ORIGIN, "its flags are unknown: they must be 0");
    if (status != PR_OK) {
        pr__error_context(&local, "middleware[%zu]", index);
        pr__error_copy(err, &local);
    }
    return status;
}

static pr_status add_one(pr__chain *chain, const pr_middleware *item, size_t index, pr_error *err)
{
    bool is_unit = item->invoke == pr__unit_invoke;
    bool is_inbox = item->invoke == pr__inbox_invoke;
    if ((is_unit && chain->has_unit) || (is_inbox && chain->has_inbox))
        return pr__fail(err, PR_E_INVALID, ORIGIN, "middleware[%zu]: '%s' stands twice", index,
                        item->name);
    if (is_unit && chain->has_inbox)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "middleware[%zu]: 'unit' stands inside 'inbox': list the work unit first, "
                        "the mark is part of its transaction",
                        index);
    if (is_inbox && !chain->has_unit)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "middleware[%zu]: 'inbox' has no 'unit' around it: list pr_middleware_unit "
                        "before pr_middleware_inbox",
                        index);
    chain->has_unit = chain->has_unit || is_unit;
    chain->has_inbox = chain->has_inbox || is_inbox;
    return PR_OK;
}

static pr_status check_list(const pr_middleware *list, size_t count, bool leased,
                            pr__chain *ret_chain, pr_error *err)
{
    if (count > PR__MIDDLEWARE_MAX)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "there are %zu middlewares, at most %d", count,
                        PR__MIDDLEWARE_MAX);
    for (size_t i = 0; i < count; i++) {
        TRY(check_one(&list[i], i, err));
        TRY(add_one(ret_chain, &list[i], i, err));
    }
    if (leased && !ret_chain->has_inbox)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "the leased inbox needs pr_middleware_unit and pr_middleware_inbox among "
                        "the middleware");
    return PR_OK;
}

pr_status pr__chain_make(const pr_middleware *list, size_t count, bool leased, pr__arena *arena,
                         pr__chain *ret_chain, pr_error *err)
{
    const pr_middleware usual[] = {pr_middleware_unit(), pr_middleware_inbox()};
    if (!list && count > 0)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "middleware is NULL, but middleware_count is %zu", count);
    if (list && count == 0) /* else a count that was forgotten would leave out the inbox */
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "middleware is given, but middleware_count is 0: set it, or leave "
                        "middleware NULL for unit and inbox");
    if (!list) {
        list = usual;
        count = sizeof usual / sizeof usual[0];
    }
    pr__chain chain = {.count = (uint32_t)count};
    TRY(check_list(list, count, leased, &chain, err));
    pr_middleware *items = pr__arena_alloc(arena, (count + 1) * sizeof *items);
    if (!items)
        return pr__fail_nomem(err, ORIGIN);
    for (size_t i = 0; i < count; i++) {
        items[i] = list[i];
        items[i].name = pr__arena_strdup(arena, list[i].name);
        if (!items[i].name)
            return pr__fail_nomem(err, ORIGIN);
    }
    chain.items = items;
    *ret_chain = chain;
    return PR_OK;
}

bool pr__next_is_inbox(const pr_next *next)
{
    const pr__chain *chain = next->chain;
    return next->index < chain->count && chain->items[next->index].invoke == pr__inbox_invoke;
}

bool pr__next_is_handler(const pr_next *next)
{
    return next->index == next->chain->count;
}

pr_handled pr_next_invoke(pr_next *next, pr_scope *scope)
{
    if (!next || !scope)
        return PR_HANDLED_PERMANENT;
    if (next->index == next->chain->count)
        return pr__handler_invoke(scope);
    const pr_middleware *item = &next->chain->items[next->index];
    pr_next rest = {.chain = next->chain, .index = next->index + 1};
    return item->invoke(item->user, scope, &rest);
}
