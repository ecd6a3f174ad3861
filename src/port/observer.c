/*
 * Names of observations, and the one place that calls an observer.
 */
#include <postroom/observer.h>

#include "port/observe.h"

const char *pr_observation_name(pr_observation_kind kind)
{
    static const char *const names[] = {
#define PR_OBSERVATION_NAME(name, text) [PR_OBSERVE_##name] = text,
        PR_OBSERVATION_LIST(PR_OBSERVATION_NAME)
#undef PR_OBSERVATION_NAME
    };
    return kind < PR_OBSERVE_COUNT ? names[kind] : "unknown";
}

void pr__observe(const pr_observer *observer, const pr_observation *observation)
{
    if (observer && observer->observe)
        observer->observe(observer->user, observation);
}
