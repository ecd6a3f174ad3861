/*
 * An envelope: one copy of a message that several queues of the memory broker share.
 */
#ifndef PR_TRANSPORT_MEMORY_ENVELOPE_H
#define PR_TRANSPORT_MEMORY_ENVELOPE_H

#include <stddef.h>

#include <postroom/message.h>

typedef struct pr__envelope {
    size_t references; /* guarded by the broker's lock */
    size_t size;       /* bytes of the block */
    pr_message message;
} pr__envelope;

/* One block with all that the message points to, one reference; NULL when out of memory. */
pr__envelope *pr__envelope_new(const pr_message *message);
pr__envelope *pr__envelope_hold(pr__envelope *envelope);
void *pr__envelope_release(pr__envelope *envelope); /* accepts NULL, returns NULL */

#endif
