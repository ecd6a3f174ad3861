/*
 * The test's side of a throw-away server's program (tools/postgres-server, tools/rabbitmq-server):
 * a child with a pipe to its standard input and one from its standard output, one line each way.
 *
 * Every wait has a deadline. The child ends its server when our end of the pipe is closed or when
 * this process is no longer its parent, so nothing stays behind after a SIGKILL either. Where no
 * server is installed the whole test is skipped, or fails when backends are required.
 */
#ifndef PR_TESTS_SERVER_CHILD_H
#define PR_TESTS_SERVER_CHILD_H

#include <stddef.h>

#define SERVER_LINE_SIZE     2048
#define SERVER_ARGUMENTS_MAX 48

typedef struct server_child server_child;

/* Start the program that the environment variable `variable` names, with these arguments (NULL at
   the end) after "--parent PID"; ret_ready: what it said after "ready ". Ends the test program when
   it cannot be done. */
server_child *server_child_start(const char *variable, const char *const *arguments,
                                 char ret_ready[SERVER_LINE_SIZE]);
/* Stop it and wait until its folder is gone. Accepts NULL. */
void server_child_free(server_child *child);
/* A command; ends the test program on an error. What came after "ok " in ret_answer, if not NULL.
 */
void server_child_ask(server_child *child, const char *command, char *ret_answer, size_t size);

#endif
