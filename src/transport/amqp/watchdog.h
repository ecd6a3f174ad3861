/*
 * The watchdog: a thread that shuts a socket down when a call on it outlasts its deadline, because
 * librabbitmq may wait without end in send().
 */
#ifndef PR_TRANSPORT_AMQP_WATCHDOG_H
#define PR_TRANSPORT_AMQP_WATCHDOG_H

#include <stdbool.h>
#include <stdint.h>

#include <postroom/error.h>

typedef struct pr__watchdog pr__watchdog;

/* What it guards: one socket. All fields are the watchdog's. */
typedef struct pr__guard {
    struct pr__guard *next;
    int fd;              /* -1 = none */
    int64_t deadline_us; /* monotonic; 0 = not armed */
    int64_t stop_us;     /* the owner wants an end by then; 0 = not */
    bool fired;
} pr__guard;

pr_status pr__watchdog_new(pr__watchdog **ret_watchdog, pr_error *err);
void *pr__watchdog_free(pr__watchdog *watchdog); /* accepts NULL, returns NULL */
/* A socket is there, or (-1) is about to be closed. */
void pr__watchdog_set(pr__watchdog *watchdog, pr__guard *guard, int fd);
void pr__watchdog_arm(pr__watchdog *watchdog, pr__guard *guard, int64_t deadline_us);
bool pr__watchdog_disarm(pr__watchdog *watchdog, pr__guard *guard); /* true: it fired */
/* From any thread: whatever the guarded thread does then, its socket is shut down. */
void pr__watchdog_stop_by(pr__watchdog *watchdog, pr__guard *guard, int64_t stop_us);
/* From any thread: shut the socket down at once, as a broken network would. */
void pr__watchdog_cut(pr__watchdog *watchdog, pr__guard *guard);

#endif
