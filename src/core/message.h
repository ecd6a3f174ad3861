/*
 * Messages inside of core: what is checked at birth is in the public header; here is the rest.
 */
#ifndef PR_CORE_MESSAGE_H
#define PR_CORE_MESSAGE_H

#include <postroom/message.h>

#include "base/memory.h"
#include "base/uuid.h"

DEFINE_AUTO(pr_message, pr_message_free);

/* The tenant as stores and inbox keys hold it: "" for none. */
static inline const char *pr__message_tenant(const pr_message *message)
{
    return message->tenant ? message->tenant : "";
}

/*
 * Check a message that came from a transport or a store: the limits of pr_message_check, but id and
 * type may be any text (they are needed), and the destination is not parsed. INVALID: the id is
 * missing or all zero.
 */
pr_status pr__message_check_received(const pr_message *message, uint64_t body_size_max,
                                     pr_error *err);

/* The id in canonical form: a UUID in lower case, any other text as it is. out[PR_UUID_TEXT_SIZE]
   is used for a UUID; the result is out or id. */
const char *pr__message_id_canonical(const char *id, char out[PR_UUID_TEXT_SIZE]);

/* Two ids are the same: UUIDs whatever their case, other texts byte for byte. */
bool pr__message_id_equal(const char *a, const char *b);

#endif
