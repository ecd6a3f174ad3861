/*
 * The publisher: submissions in, outcomes out, over one link.
 */
#ifndef PR_TRANSPORT_AMQP_PUBLISHER_H
#define PR_TRANSPORT_AMQP_PUBLISHER_H

#include "port/outcomes.h"
#include "transport/amqp/confirm.h"
#include "transport/amqp/exchanges.h"
#include "transport/amqp/link.h"
#include "transport/amqp/wire.h"

/* Accepted, not published yet. */
typedef struct pr__pending {
    uint64_t ticket;
    const pr_message *message;
    int64_t accepted_at_us;
} pr__pending;

typedef struct pr__publisher {
    pr__amqp_link link;
    /* under the link's lock */
    pr__pending *inbox; /* what callers submitted and the thread did not take yet */
    uint32_t inbox_count;
    pr__outcomes outcomes;
    uint32_t in_flight;       /* accepted, outcome not polled yet */
    uint64_t bytes_in_flight; /* bodies without an outcome */
    bool waiting;             /* somebody waits for an outcome */
    /* the thread's own */
    pr__pending *pending; /* a ring of window: taken, not published */
    uint32_t pending_first, pending_count;
    pr__confirms confirms;
    pr__exchanges exchanges;
    pr__wire_out wire;
    pr__amqp_target target;  /* of the last message */
    char destination[768];   /* whose target that is; "" = none */
    uint32_t target_version; /* with this type_version */
    bool target_plain;       /* without headers that change it */
    bool channel_open;
    uint32_t closes;       /* of the channel, in a row */
    int64_t reopen_at_us;  /* while the channel is closed */
    int64_t grace_from_us; /* deadlines of confirms count from here at least */
    uint16_t return_code;  /* of the return in hand; 0 = none */
    bool was_blocked;
    char reason[256]; /* why all are lost, while they are told */
    uint16_t close_code;
    bool suspects; /* those told now may be what closed it */
} pr__publisher;

pr_status pr__publisher_init(pr__publisher *publisher, pr__amqp_settings *settings, pr_error *err);
void pr__publisher_done(pr__publisher *publisher);
pr_status pr__publisher_submit(pr__publisher *publisher, const pr_submission *submissions,
                               size_t count, size_t *ret_accepted, pr_error *err);
void pr__publisher_poll(pr__publisher *publisher, int64_t timeout_ms, pr_submitted *ret_outcomes,
                        size_t max, size_t *ret_count);

/* ---- its parts ---- */

/* publisher_send.c: publish what is pending, as far as window and socket allow. */
pr_status pr__publisher_send(pr__publisher *publisher, pr__amqp_connection *connection,
                             bool *ret_want_write, pr_error *err);
/* publisher_channel.c: frames, and the life of the channel. */
pr_status pr__publisher_frame(void *user, pr__amqp_connection *connection,
                              const amqp_frame_t *frame, pr_error *err);
pr_status pr__publisher_channel_open(pr__publisher *publisher, pr__amqp_connection *connection,
                                     bool was_closed, pr_error *err);
/* publisher.c: one more outcome; takes the lock itself. message is the caller's again. */
void pr__publisher_tell(pr__publisher *publisher, uint64_t ticket, const pr_message *message,
                        pr_submit_outcome outcome, bool suspect, const char *reason);

#define PR__PUBLISHER_CHANNEL 1

#endif
