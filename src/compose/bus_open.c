/*
 * A bus with all that it needs, in one call: the one place of the library that puts core and an
 * adapter together.
 *
 * Keeps: a call that fails leaves nothing open; what was opened is the bus's, and freed after it.
 * Must not know: which database it is, how the parts work.
 */
#include <postroom/bus.h>
#include <postroom/database.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "core/bus.h"

#define ORIGIN "bus"

DEFINE_AUTO(pr_store, pr_store_free);
DEFINE_AUTO(pr_transport, pr_transport_free);
DEFINE_AUTO(pr_bus, pr_bus_free);

/* Freed from the last to the first: the bus before what it uses. */
static pr_status make(pr_store_opener open_store, const char *where, pr_bus_options *opt,
                      pr_bus **ret_bus, pr_error *err)
{
    AUTO(pr_store) store = NULL;
    AUTO(pr_transport) transport = NULL;
    AUTO(pr_bus) bus = NULL;
    TRY(open_store(where, &store, err));
    const pr_database_options database =
        PR_DATABASE_OPTIONS(.observer = opt->observer, .clock = opt->clock);
    TRY(pr_database_transport_new(store, &database, &transport, err));
    opt->store = store;
    TRY(pr_bus_new(opt, &bus, err));
    TRY(pr_bus_add_transport(bus, transport, err));
    pr_store *own_store = TAKE(store);
    pr_transport *own_transport = TAKE(transport);
    pr__bus_own(bus, own_store, own_transport);
    *ret_bus = TAKE(bus);
    return PR_OK;
}

pr_status pr_bus_open(pr_store_opener open_store, const char *where, const pr_bus_options *opt,
                      pr_bus **ret_bus, pr_error *err)
{
    pr_bus_options own = PR_BUS_OPTIONS(.store = NULL);
    if (!open_store || !ret_bus)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "open_store or ret_bus is NULL");
    if (opt) {
        TRY(pr__sized_check(opt, sizeof *opt, "pr_bus_options", ORIGIN, err));
        own = *opt;
    }
    if (own.store)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "pr_bus_open opens the store itself: leave it out of the options, or use "
                        "pr_bus_new");
    return make(open_store, where, &own, ret_bus, err);
}
