/*
 * From words on the command line to stores and transports: the only place that names adapters.
 */
#ifndef PR_CLI_WIRING_H
#define PR_CLI_WIRING_H

#include <stdbool.h>
#include <stdint.h>

#include <postroom/observer.h>
#include <postroom/store.h>
#include <postroom/transport.h>

#include "base/memory.h"
#include "cli/options.h"

#define PR__STORE_ENVIRONMENT "POSTROOM_STORE"

typedef struct pr__store_request {
    const pr__common *common;
    bool create;                 /* make the file and open it whatever its schema: migrate only */
    bool schema_check_off;       /* open it whatever its schema, make nothing: doctor */
    uint64_t body_size_max;      /* 0 = the default */
    const pr_observer *observer; /* may be NULL */
} pr__store_request;

/* Open --store, or POSTROOM_STORE. INVALID: none given, or of a kind that is not there. NOT_FOUND,
   SCHEMA: with the command that mends it. */
pr_status pr__wiring_store(const pr__store_request *request, pr_store **ret_store, pr_error *err);

/* The name of the store as given, for texts. NULL: none given. */
const char *pr__wiring_store_name(const pr__common *common);

/* A transport with the store that it leads to. */
typedef struct pr__link {
    pr_store *store;
    pr_transport *transport;
    char name[32];
} pr__link;

/* Read "[NAME=]STORE" and open it. The name is default_name when none is given. */
pr_status pr__wiring_link(const char *text, const char *default_name, const pr__common *common,
                          const char *owner, const pr_observer *observer, pr__link *ret_link,
                          pr_error *err);
void pr__link_done(pr__link *link);

DEFINE_AUTO(pr_store, pr_store_free);

#endif
