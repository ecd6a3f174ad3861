/*
 * Turns: whoever waits for the write lock says so, and whoever has just committed lets it through.
 *
 * SQLite has no queue of writers: one that commits in a loop leaves gaps of microseconds, and
 * others find one by chance only. The sign is a flock() on the folder of the database, so that no
 * file is added, none of the database's files is opened, and a dead waiter leaves no trace. It is
 * a courtesy: without it everything is right, only less fair.
 */
#ifndef PR_STORE_SQLITE_TURN_H
#define PR_STORE_SQLITE_TURN_H

#include <stdint.h>

/* Say that this process waits for the database at path. A descriptor for pr__turn_release, or -1:
   another waits already, or the folder cannot be opened. */
int pr__turn_take(const char *path);
/* -1 is accepted; returns -1. */
int pr__turn_release(int fd);
/* Let a waiter through, for limit_us at most. */
void pr__turn_yield(const char *path, int64_t limit_us);

#endif
