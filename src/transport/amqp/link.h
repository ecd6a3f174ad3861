/*
 * A link: a thread that keeps one connection up, and does all that librabbitmq does on it.
 *
 * Callers talk to it through queues of their own under the link's lock; pr__amqp_link_wake() makes
 * it look. It reconnects by itself, from TCP upward, with backoff and jitter.
 */
#ifndef PR_TRANSPORT_AMQP_LINK_H
#define PR_TRANSPORT_AMQP_LINK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "transport/amqp/connection.h"

typedef struct pr__amqp_link pr__amqp_link;

/* What the link is for. All are called on the link's thread, without its lock. */
typedef struct pr__amqp_link_ops {
    /* Logged in: open channels and so on. Any failure ends this connection; NOT_FOUND, CONFLICT and
       CONTENT are told to who waits, BACKEND too. */
    pr_status (*setup)(void *user, pr__amqp_connection *connection, pr_error *err);
    /* Do what callers want and what is due. *ret_want_write: there is more, once the socket takes
       it. *wait_ms may be made shorter. */
    pr_status (*work)(void *user, pr__amqp_connection *connection, bool writable,
                      bool *ret_want_write, int64_t *wait_ms, pr_error *err);
    /* A frame of any channel but 0. Its memory is gone afterwards. */
    pr_status (*frame)(void *user, pr__amqp_connection *connection, const amqp_frame_t *frame,
                       pr_error *err);
    /* Whatever was read so far has been handed over. */
    void (*flush)(void *user);
    /* The connection is about to be closed; why is NULL at an orderly stop. */
    void (*down)(void *user, pr__amqp_connection *connection, const pr_error *why);
} pr__amqp_link_ops;

struct pr__amqp_link {
    pr__amqp_settings *settings;
    const pr__amqp_link_ops *ops;
    void *user;
    const char *role; /* constant */
    pr__guard guard;
    pthread_t thread;
    bool started;
    int wake_fd;
    pthread_mutex_t lock;   /* all below, and the owner's queues */
    pthread_cond_t changed; /* the state, or something of the owner's */
    bool stop;
    bool woken; /* wake_fd was written and not read yet */
    bool over;  /* it does not try again */
    pr_transport_state_kind kind;
    char cause[512];
    uint64_t failed_count; /* attempts and connections that failed */
    pr_error last_error;
    /* the thread's own */
    uint32_t failures; /* in a row */
    size_t turn;       /* of the URIs */
    uint64_t random;
};

pr_status pr__amqp_link_init(pr__amqp_link *link, pr__amqp_settings *settings,
                             const pr__amqp_link_ops *ops, void *user, const char *role,
                             pr_error *err);
pr_status pr__amqp_link_start(pr__amqp_link *link, pr_error *err); /* once; again does nothing */
/* Ends the thread and all it holds; takes about the close timeout at most. */
void pr__amqp_link_done(pr__amqp_link *link);
/* Until it is up, or an attempt failed, or the time is over. BUSY: blocked. */
pr_status pr__amqp_link_wait_up(pr__amqp_link *link, int64_t timeout_ms, pr_error *err);
/* With the lock held. */
void pr__amqp_link_wake(pr__amqp_link *link);
void pr__amqp_link_state_set(pr__amqp_link *link, pr_transport_state_kind kind, const char *cause);
/* Wait for `changed`; false when until_us (monotonic) is over. */
bool pr__amqp_link_wait(pr__amqp_link *link, int64_t until_us);
/* The thread's: something went well, so the next failure is a first one. */
static inline void pr__amqp_link_served(pr__amqp_link *link)
{
    link->failures = 0;
}
/* The thread's: how long to wait after so many failures in a row, with jitter. */
int64_t pr__amqp_link_backoff_ms(pr__amqp_link *link, uint32_t failures);

#endif
