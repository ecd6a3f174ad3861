/*
 * How a command that runs for long is told to stop: signals, and the end of who started it.
 */
#ifndef PR_CLI_STOP_H
#define PR_CLI_STOP_H

#include <stdbool.h>
#include <stdint.h>

/* SIGINT and SIGTERM go to the handler, once: the second of one ends the process. A read that waits
   is woken. SIG_DFL: no more. */
void pr__stop_watch(void (*handler)(int number));

/* Get SIGTERM when this process, which started us, is gone. False: it was gone before. */
bool pr__stop_with_parent(int64_t parent);

#endif
