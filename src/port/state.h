/*
 * The names of the states and boxes, as the views and the command line show them, and of the
 * orders.
 */
#ifndef PR_PORT_STATE_H
#define PR_PORT_STATE_H

#include <stdbool.h>

#include <postroom/operations.h>

const char *pr__state_text(pr_state state); /* "pending"; "unknown" for a value that is none */
const char *pr__box_text(pr_box box);       /* "outbox", "inbox" */
bool pr__state_parse(const char *text, pr_state *ret_state);
/* "hold", "skip", "halt"; of DEFAULT and of anything else the default, which is hold. */
const char *pr__order_text(pr_order order);
pr_order pr__order_parse(const char *text);
/* May a message in this state wait behind an older one of its key? */
bool pr__record_blockable(const pr_record *record);

#endif
