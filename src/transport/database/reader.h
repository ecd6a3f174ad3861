/*
 * The reader that stands for a subscription: its name and the addresses that it takes.
 */
#ifndef PR_TRANSPORT_DATABASE_READER_H
#define PR_TRANSPORT_DATABASE_READER_H

#include <postroom/transport.h>

#include "base/memory.h"
#include "port/store.h"

#define PR__EXPIRY_MS_DEFAULT 60000 /* of a temporary reader that nobody keeps */

/* Find or make the reader. CONFLICT: it stands with other types, or is a temporary one of somebody
   else. */
pr_status pr__reader_attach(pr_store *store, const pr_subscribe_options *options,
                            int64_t *ret_reader, pr_error *err);
/* 0: it does not stand. Looks at nothing but the name, and only reads. */
pr_status pr__reader_look_up(pr_store *store, const pr_subscribe_options *options,
                             int64_t *ret_reader, pr_error *err);
/* NOT_FOUND: there is none. CONFLICT: it stands with other types. Changes nothing. */
pr_status pr__reader_verify(pr_store *store, const pr_subscribe_options *options, pr_error *err);

#endif
