/*
 * The window: what was published on the channel and is not confirmed yet. Pure.
 */
#ifndef PR_TRANSPORT_AMQP_CONFIRM_H
#define PR_TRANSPORT_AMQP_CONFIRM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/transport.h>

#define PR__CONFIRM_BUCKETS_MIN 1024 /* a power of two, as are more */

typedef struct pr__confirm_entry {
    uint64_t ticket;
    const pr_message *message; /* borrowed; NULL once it has its outcome */
    int64_t sent_at_us;
    uint32_t id_hash;
    uint16_t return_code; /* of the broker; 0 = not returned */
    bool settled;         /* confirmed or refused by the broker */
} pr__confirm_entry;

/* Delivery tags of a channel go up by one a publish: an entry stands at its tag modulo capacity.
   Two cursors: all below `confirmed` are done, all below `sent` were published. */
typedef struct pr__confirms {
    pr__confirm_entry *entries;
    uint32_t capacity;
    uint64_t confirmed; /* the lowest tag that is not settled */
    uint64_t sent;      /* the next tag */
    uint64_t bytes;     /* bodies of entries that have no outcome yet */
    uint32_t *buckets;  /* how many ids are on their way, by hash: few a bucket */
    uint32_t bucket_count;
} pr__confirms;

/* What became of one entry. The message is the caller's again afterwards. */
typedef void (*pr__confirm_sink)(void *user, const pr__confirm_entry *entry,
                                 pr_submit_outcome outcome);

pr_status pr__confirms_init(pr__confirms *confirms, uint32_t capacity, pr_error *err);
void pr__confirms_done(pr__confirms *confirms);
static inline uint32_t pr__confirms_count(const pr__confirms *confirms)
{
    return (uint32_t)(confirms->sent - confirms->confirmed);
}
static inline bool pr__confirms_full(const pr__confirms *confirms)
{
    return pr__confirms_count(confirms) == confirms->capacity;
}
pr__confirm_entry *pr__confirms_at(pr__confirms *confirms, uint64_t tag);
uint32_t pr__confirms_hash(const char *id);
/* Is a message of this id on its way? A return names the message by its id alone. */
bool pr__confirms_has(const pr__confirms *confirms, const char *id, uint32_t hash);
/* It was published; the window is not full. */
void pr__confirms_push(pr__confirms *confirms, uint64_t ticket, const pr_message *message,
                       uint32_t hash, int64_t now_us);
/* basic.return: the ack comes later and changes nothing. false: no such message. */
bool pr__confirms_returned(pr__confirms *confirms, const char *id, size_t id_size, uint16_t code);
/* basic.ack or basic.nack. false: a tag that is not on its way; nothing was done. */
bool pr__confirms_settle(pr__confirms *confirms, uint64_t tag, bool multiple, bool acked,
                         pr__confirm_sink sink, void *user);
/* Lost: those sent before then get their outcome, and keep their place for a late confirm. */
void pr__confirms_expire(pr__confirms *confirms, int64_t sent_before_us, pr__confirm_sink sink,
                         void *user);
/* The channel is gone: what was returned is RETURNED, all else LOST. Empty, tags begin anew. */
void pr__confirms_reset(pr__confirms *confirms, pr__confirm_sink sink, void *user);

#endif
