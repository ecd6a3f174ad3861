/*
 * What a running command says on standard error: each event as a line, with --verbose.
 */
#ifndef PR_CLI_EVENT_H
#define PR_CLI_EVENT_H

#include <postroom/observer.h>

#include "cli/cli.h"

/* A line of text, or with --json an object: the time, the event, and what it is about. */
void pr__event_print(const pr__cli *cli, const pr_observation *seen);

#endif
