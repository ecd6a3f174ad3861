/*
 * How a process is called where people read it: owners of claims and leases, connections.
 */
#ifndef PR_BASE_PROCESS_H
#define PR_BASE_PROCESS_H

#include <stddef.h>

/* "<host>:<pid>", in valid UTF-8 whatever the host is called. Not an identity. */
void pr__process_name(char *out, size_t size);
/* The host's name, "host" when it has none that is text. */
void pr__process_host(char *out, size_t size);

#endif
