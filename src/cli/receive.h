/*
 * The parts of `postroom receive`: a command that handles messages, started for each of them
 * (receive_exec.c) or spoken to in JSON lines (receive_lines.c).
 */
#ifndef PR_CLI_RECEIVE_H
#define PR_CLI_RECEIVE_H

#include <stdbool.h>
#include <stdint.h>

#include <postroom/endpoint.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "cli/child.h"
#include "cli/child_pool.h"
#include "cli/guard.h"

#define PR__REASON_SIZE 512

/* How commands are run; fixed. */
typedef struct pr__receiver {
    pr__guard *guard;
    const char *command;
    const char *endpoint;
    int64_t timeout_ms; /* of one message; 0 = none */
    int64_t kill_after_ms;
    uint64_t body_size_max; /* of what the command sends */
    bool follow_ups;        /* what it prints are messages */
    bool (*cancelled)(void *scope);
    bool (*stopping)(void); /* we were told to */
} pr__receiver;

/* What became of a message, as the command says. */
typedef struct pr__answer {
    pr_handled handled;
    int64_t delay_ms; /* -1 = by the endpoint's backoff */
    char reason[PR__REASON_SIZE];
    pr__buffer follow_ups; /* JSON lines, as of `postroom send --lines` */
} pr__answer;

/* ---- receive_exec.c ---- */

/* How the command ended, in words, and what that means for its message when nothing else says it:
   DEFER when the command could not be run, or ended because all of us were told to, as a service
   manager does; else RETRY. */
pr_handled pr__receive_end(const pr__receiver *receiver, const pr__child *child, char *out,
                           size_t size);

/* Run the command for one message. */
void pr__receive_exec(const pr__receiver *receiver, pr_scope *scope, pr__answer *ret_answer);

/* ---- receive_lines.c ---- */

/* Give the message to a command of the pool, which is started when it does not run. */
void pr__receive_line(const pr__receiver *receiver, pr__child_pool *pool, pr_scope *scope,
                      pr__answer *ret_answer);

/* ---- receive_envelope.c ---- */

/* The environment of a command: ours, and the envelope when scope is not NULL. NULL-terminated, in
   the arena; NULL when out of memory. */
char **pr__receive_environment(const pr__receiver *receiver, const pr_scope *scope,
                               pr__arena *arena);

/* The message as a JSON line, with its end. */
void pr__receive_render(const pr__receiver *receiver, const pr_scope *scope, pr__buffer *out);

#endif
