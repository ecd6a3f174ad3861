/*
 * A small process beside ours that ends the commands which run when we are killed.
 */
#ifndef PR_CLI_GUARD_H
#define PR_CLI_GUARD_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include <postroom/error.h>

#define PR__GUARD_SLOTS 256

/* What is known of one command, in memory that it, the guard and we share. */
typedef struct pr__guard_slot {
    atomic_int group;      /* its process group; 0 = the slot is free, -1 = it is being started */
    atomic_int exec_errno; /* why it could not be started */
} pr__guard_slot;

typedef struct pr__guard {
    pr__guard_slot *slots; /* NULL = none */
    int fd;                /* closed by our end, whatever that is */
} pr__guard;

/* Start it, before any thread: it has none of our descriptors, and none of our signals reach it.
   Commands that outlive us get SIGTERM, and SIGKILL after kill_after_ms. */
pr_status pr__guard_start(int64_t kill_after_ms, pr__guard *ret_guard, pr_error *err);

/* It ends; commands that run still are ended as if we had been killed. NULLs are accepted. */
void pr__guard_done(pr__guard *guard);

/* A slot for a command that is to be started; NULL = all are taken. Any thread. */
pr__guard_slot *pr__guard_reserve(pr__guard *guard);

/* In the command's process, before its exec: from now on it is guarded. Safe after fork. */
void pr__guard_enter(pr__guard_slot *slot, pid_t group);

/* The group is not to be ended any more; while its leader is not waited for, so that the number is
   nobody else's. */
void pr__guard_leave(pr__guard_slot *slot);

#endif
