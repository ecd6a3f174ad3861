/*
 * A bus on a world's store, for the suites of the bus: on the memory transport, on the database
 * transport of the store itself, or on the carrier that the program was started for.
 */
#ifndef PR_TESTS_BUS_STAND_H
#define PR_TESTS_BUS_STAND_H

#include "bus/world.h"

#define TYPE_ASK   "urn:message:shop:price-asked"
#define TYPE_PRICE "urn:message:shop:price-told"
#define TYPE_NONE  "urn:message:shop:no-price"

/* Its transports are templates, never used by themselves. It is static in its case, because threads
   of a case that fails still use it; the teardown closes it when the case does not. */
typedef struct stand {
    world *w;
    pr_transport *memory, *database, *carrier;
    pr_bus *bus;
    const char *scheme;
    atomic_int seen[3];
    char envelopes[2][1024]; /* of what the last handler got, by arrival */
    atomic_int envelope_count;
    pr_status nested;
} stand;

void stand_open(stand *s, world *w, const char *scheme);
void stand_open_alone(stand *s, world *w); /* with the carrier and no other transport */
void stand_start(stand *s);
void stand_close(stand *s);
pr_bus_snapshot bus_snapshot(stand *s);
/* Fails when nothing changes any more. */
void wait_seen(atomic_int *seen, int wanted, const char *label);

/* The schemes that cases run on, one after the other; NULL when it was the last. */
const char *scheme_at(size_t n);

#endif
