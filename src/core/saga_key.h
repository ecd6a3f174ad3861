/*
 * How a message finds its saga: the correlation key.
 */
#ifndef PR_CORE_SAGA_KEY_H
#define PR_CORE_SAGA_KEY_H

#include <postroom/contract.h>
#include <postroom/saga.h>

#define PR_SAGA_KEY_SIZE (PR_ID_SIZE_MAX + 2) /* one more byte tells that a key was too long */

/* The field of a path like "order.id" through nested tables; NULL: there is none, or it is no text,
   UUID or integer. *ret_offset (may be NULL): from the beginning of the object. */
const pr_field *pr__saga_key_field(const pr_contract *contract, const char *path,
                                   size_t *ret_offset);

/* The key of the message in hand. CONTENT: it has none, or a bad one. */
pr_status pr__saga_key_of(const pr_saga *saga, const pr_saga_message *entry, const pr_scope *scope,
                          char ret_key[PR_SAGA_KEY_SIZE], pr_error *err);

#endif
