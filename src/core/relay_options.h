/*
 * The options of a relay: defaults filled in, contradictions refused.
 */
#ifndef PR_CORE_RELAY_OPTIONS_H
#define PR_CORE_RELAY_OPTIONS_H

#include <postroom/relay.h>

#define PR__RELAY_BACKOFF_MAX_MS 30000 /* of breakers and, by default, of rounds */

/* opt may be NULL. In *ret_options every 0 is replaced: PR_RETRY_NONE and PR_JITTER_NONE by 0,
   clock and random by the system's; owner stays NULL when it was. */
pr_status pr__relay_options_resolve(const pr_relay_options *opt, pr_relay_options *ret_options,
                                    pr_error *err);

#endif
