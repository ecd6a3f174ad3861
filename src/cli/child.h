/*
 * A command of the user's, as a process with pipes to its standard input and output.
 */
#ifndef PR_CLI_CHILD_H
#define PR_CLI_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <postroom/error.h>

#include "base/buffer.h"
#include "cli/guard.h"

typedef struct pr__child {
    pid_t pid;  /* 0 = none; the leader of a process group of its own */
    int pid_fd; /* readable when it has ended */
    int input;  /* our end of its standard input; -1 = closed */
    int output; /* our end of its standard output; -1 = it has ours */
    pr__guard_slot *slot;
    int status;     /* of waitpid, once it has ended */
    int exec_errno; /* then: why the shell could not be run; 0 = it was */
} pr__child;

/* Run `sh -c command`. With read_output its standard output is ours to read. Its group dies with
   us, by the guard. BACKEND, LIMIT. */
pr_status pr__child_start(pr__guard *guard, const char *command, char *const *environment,
                          bool read_output, pr__child *ret_child, pr_error *err);

/* One message to it, and what it says. */
typedef struct pr__exchange {
    const char *input;
    size_t input_size;
    bool close_input;   /* then its standard input ends */
    bool until_line;    /* over with the first line that it writes; else with its end */
    size_t output_max;  /* bytes that are kept of what it writes */
    int64_t timeout_ms; /* 0 = none */
    bool (*cancelled)(void *user);
    void *user;
    size_t sent;       /* of input */
    pr__buffer output; /* with until_line, the line and what came with it */
} pr__exchange;

typedef enum pr__child_end {
    PR__CHILD_ANSWERED = 1, /* a line is there */
    PR__CHILD_ENDED,        /* child->status says how; it is waited for */
    PR__CHILD_TIMED_OUT,
    PR__CHILD_CANCELLED,
    PR__CHILD_CLOSED,  /* with until_line: it goes on, but closed its input or its output */
    PR__CHILD_TOO_LONG /* it writes more than output_max */
} pr__child_end;

/* Write and read until it is over. A child that closes its input early misses the rest. */
pr__child_end pr__child_exchange(pr__child *child, pr__exchange *exchange);

/* Whether it can be given a message: it has not ended, it reads and writes, and has written nothing
   that nobody asked for. */
bool pr__child_is_idle(const pr__child *child);

/* End it and its group: close its input, wait `wait_ms`; SIGTERM, wait `kill_after_ms`; SIGKILL. */
void pr__child_stop(pr__child *child, int64_t wait_ms, int64_t kill_after_ms);
/* All of them at once; each wait is for all. */
void pr__child_stop_all(pr__child *const *children, size_t count, int64_t wait_ms,
                        int64_t kill_after_ms);

/* "ended with exit 3", "was killed by signal 9". */
void pr__child_end_text(const pr__child *child, char *out, size_t size);

#endif
