/*
 * Other processes of a test: this program again, told by its arguments what to do (child.c). They
 * read the log of the store by the database transport, or the queue of the carrier.
 */
#ifndef PR_TESTS_BUS_OTHER_H
#define PR_TESTS_BUS_OTHER_H

#include "bus/world.h"

#define ID_A       "0198c5f2-7d3e-7a10-8b2c-00000000000a"
#define TYPE_ASK   "urn:message:shop:price-asked"
#define TYPE_PRICE "urn:message:shop:price-told"
#define COPIES     16 /* of one message, in each of the twins */
#define EXPIRY_MS  400
#define BATCH      20
/* Set for the others by the test, when it has a carrier. */
#define BUS_CARRIER_ADDRESS "POSTROOM_BUS_CARRIER_ADDRESS"

typedef struct other {
    world *w;
    pid_t pid;
    int said;
    int told; /* its input: closed to let it go on */
} other;

other other_start_with(world *w, const char *mode, const char *threads, const char *fault);
other other_start(world *w, const char *mode, const char *threads);
/* Of a batch, the ids that end with an odd digit are handled without asking for the unit. */
bool other_is_odd(const char *id);
char other_hear(const other *o); /* a letter that it says; 0 = it ended */
void other_tell(other *o);       /* to go on */
int other_wait(const other *o);  /* its status */
int other_end(other *o, int number);

/* The world's endpoint and sender, on what the others read. */
void other_world(world *w);
pr_transport *other_transport(world *w);
void other_send(world *w, const char *id);

#endif
