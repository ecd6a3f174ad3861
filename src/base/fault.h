/*
 * Named fault points, compiled in test builds only (meson option fault_points).
 *
 * POSTROOM_FAULT="name:hit:action[:milliseconds]", several joined by commas; hit counts from 1, 0
 * is every hit; action is kill (SIGKILL to itself), pause (SIGSTOP to itself), delay, fail (only at
 * a PR_FAULT_FAILS point). POSTROOM_FAULT_TRACE=FILE appends a line "name hit" for every hit, so
 * that a crash test finds all points by running once. A name is "<part>.<before|after>_<step>".
 */
#ifndef PR_BASE_FAULT_H
#define PR_BASE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#ifdef PR_FAULT_POINTS
bool pr__fault_hit(const char *name); /* true: this point should fail */
void pr__fault_reset(
    const char *spec); /* in-process tests: replaces the environment; NULL = none */
void pr__fault_alloc_fail_at(
    int64_t n);                      /* the n-th allocation from now fails (1 = next); 0 = off */
int64_t pr__fault_alloc_count(void); /* allocations since the last call of _fail_at */
bool pr__fault_alloc_fails(void); /* count one of an allocator beside ours; true: it is to fail */
#define PR_FAULT(name)       ((void)pr__fault_hit(name))
#define PR_FAULT_FAILS(name) pr__fault_hit(name)
#else
#define PR_FAULT(name)       ((void)0)
#define PR_FAULT_FAILS(name) (false)
#endif

#endif
