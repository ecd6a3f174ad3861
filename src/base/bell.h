/*
 * The doorbell between processes: a datagram to a socket in the file system, on which somebody may
 * listen. It carries nothing and promises nothing; whoever listens looks at the database then.
 */
#ifndef PR_BASE_BELL_H
#define PR_BASE_BELL_H

#include <stdbool.h>
#include <stdint.h>

#define PR__BELL_ENVIRONMENT "POSTROOM_DOORBELL"
#define PR__BELL_SIZE        108 /* of a path, with its NUL: what the address of a socket holds */

/* The path that is meant: the given one, or for NULL the environment's; "" = none. */
const char *pr__bell_path(const char *given);

/* Ring: never waits, and nobody hears of it when nobody listens. False: nobody did. */
bool pr__bell_ring(const char *path);

/* A listener. */
typedef struct pr__bell {
    int fd;                   /* to be polled for reading; -1 = it does not listen */
    char path[PR__BELL_SIZE]; /* "" = none */
    uint64_t device, inode;   /* of the socket that we made */
    int64_t look_at_us;
} pr__bell;

/* Nothing is made yet; a path that is too long is none. */
void pr__bell_init(pr__bell *bell, const char *path);
/* Listen, unless it does; now and then see whether the path is still ours. A socket that its
   listener left behind is replaced, one on which somebody listens is not, a file never. */
void pr__bell_tend(pr__bell *bell, int64_t now_us);
/* Take what rang; false = nothing. */
bool pr__bell_take(pr__bell *bell);
/* Stop listening, and remove the socket when it is ours. */
void pr__bell_done(pr__bell *bell);

#endif
