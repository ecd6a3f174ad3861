/*
 * Signals of commands that run for long.
 *
 * Keeps: whoever signals twice is obeyed at once.
 * Must not know: what is stopped.
 */
#include "cli/stop.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

void pr__stop_watch(void (*handler)(int number))
{
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_handler = handler;
    action.sa_flags = (int)SA_RESETHAND; /* without SA_RESTART */
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool pr__stop_with_parent(int64_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    return getppid() == (pid_t)parent;
}
