/*
 * The ring of outcomes.
 *
 * Invariant: never more than its room, since a transport accepts no more than its window before
 * outcomes are polled; each is given once, in the order in which they came.
 */
#include "port/outcomes.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/memory.h"

pr_status pr__outcomes_init(pr__outcomes *outcomes, uint32_t window, const char *origin,
                            pr_error *err)
{
    *outcomes =
        (pr__outcomes){.items = pr__alloc_array(window, sizeof *outcomes->items), .room = window};
    return outcomes->items ? PR_OK : pr__fail_nomem(err, origin);
}

void pr__outcomes_done(pr__outcomes *outcomes)
{
    pr__free(outcomes->items);
    *outcomes = (pr__outcomes){0};
}

pr_submitted *pr__outcomes_add(pr__outcomes *outcomes, uint64_t ticket, pr_submit_outcome outcome)
{
    pr_assert(outcomes->count < outcomes->room);
    uint32_t at = outcomes->first + outcomes->count++;
    pr_submitted *item = &outcomes->items[at < outcomes->room ? at : at - outcomes->room];
    item->ticket = ticket;
    item->outcome = outcome;
    item->suspect = false;
    item->reason[0] = '\0';
    return item;
}

size_t pr__outcomes_take(pr__outcomes *outcomes, pr_submitted *ret_outcomes, size_t max)
{
    size_t count = 0;
    for (; count < max && outcomes->count > 0; count++) {
        ret_outcomes[count] = outcomes->items[outcomes->first];
        if (++outcomes->first == outcomes->room)
            outcomes->first = 0;
        outcomes->count--;
    }
    return count;
}
