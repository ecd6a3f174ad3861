/*
 * The line: threads of one process that want to write to one database stand in it.
 *
 * SQLite has one writer and no queue: connections of one process that meet at BEGIN IMMEDIATE find
 * the lock held and sleep, and a commit leaves it free until one of them wakes by chance. A store
 * and its clones share a line, so that whoever is next is woken, and only other processes are
 * waited for by sleeping (turn.h). It is a courtesy like that: the lock is still SQLite's.
 */
#ifndef PR_STORE_SQLITE_LINE_H
#define PR_STORE_SQLITE_LINE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pr__line pr__line;

/* NULL: out of memory. Held once. */
pr__line *pr__line_new(void);
/* Hold it once more; returns it. */
pr__line *pr__line_hold(pr__line *line);
/* Gone with the last hold; accepts NULL, returns NULL. */
void *pr__line_release(pr__line *line);

/* Wait for the turn until the monotonic instant. False: it did not come. A thread that has it
   and asks again, through another connection, waits for itself until then. */
bool pr__line_enter(pr__line *line, int64_t until_us);
/* Give the turn up. In a process that was forked off it does nothing: there the line is dead. */
void pr__line_leave(pr__line *line);

#endif
