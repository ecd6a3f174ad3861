/*
 * The end of the road: a state in which going on could lose or double a message.
 *
 * Owns: the one call of abort in the library, and the one line that it prints before.
 * Keeps: nothing is allocated and no lock is taken on the way, so it works in any state.
 * Must not know: what a message is.
 */
#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void pr__assert_failed(const char *expression, const char *file, int line)
{
    char text[512];
    int size = snprintf(text, sizeof(text), "postroom: assertion failed: %s (%s:%d)\n", expression,
                        file, line);
    if (size > 0) {
        size_t length = (size_t)size < sizeof(text) ? (size_t)size : sizeof(text) - 1;
        ssize_t written = write(STDERR_FILENO, text, length);
        (void)written; /* nothing can be done about it: the next line ends the process */
    }
    abort();
}
