/*
 * Telling an observer what happened.
 */
#ifndef PR_PORT_OBSERVE_H
#define PR_PORT_OBSERVE_H

#include <postroom/observer.h>

/* Nothing happens when there is no observer. */
void pr__observe(const pr_observer *observer, const pr_observation *observation);

#endif
