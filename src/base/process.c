/*
 * How a process is called.
 *
 * Invariant: the name is valid UTF-8, since it goes into databases that check it.
 */
#include "base/process.h"

#include <string.h>
#include <unistd.h>

#include "base/text.h"

#define HOST_SIZE 65 /* of Linux, with its NUL */

void pr__process_host(char *out, size_t size)
{
    char host[HOST_SIZE] = "";
    bool known = gethostname(host, sizeof host - 1) == 0 && host[0] != '\0' &&
                 pr__utf8_valid(host, strlen(host));
    pr__format(out, size, "%s", known ? host : "host");
}

void pr__process_name(char *out, size_t size)
{
    char host[HOST_SIZE];
    pr__process_host(host, sizeof host);
    pr__format(out, size, "%s:%ld", host, (long)getpid());
}
