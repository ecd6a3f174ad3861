/*
 * One message into a store, in a transaction of its own.
 */
#ifndef PR_TESTS_ENQUEUE_H
#define PR_TESTS_ENQUEUE_H

#include <postroom/unit.h>

#include "support/test.h"

/* A message that is refused fails the test. */
static inline void enqueue_and_commit(pr_store *store, const pr_message *message)
{
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = NULL;
    check_ok(pr_unit_begin(store, &unit, &err), &err, "begin");
    check_ok(pr_unit_enqueue(unit, message, NULL, &err), &err, "enqueue");
    check_ok(pr_unit_commit(unit, NULL, &err), &err, "commit");
    pr_unit_free(unit);
}

#endif
