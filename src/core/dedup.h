/*
 * By what a receiver knows a message again, and what of a bad message can be kept.
 */
#ifndef PR_CORE_DEDUP_H
#define PR_CORE_DEDUP_H

#include <postroom/message.h>

#include "base/hash.h"

#define PR_DEDUP_ID_SIZE (PR_ID_SIZE_MAX + 1)

/* The dedup id: our header, else the message's id; a UUID in lower case; longer than 255 bytes: a
   hash of it, never cut. CONTENT: there is none that can be used, and why. */
pr_status pr__dedup_id(const pr_message *message, char out[PR_DEDUP_ID_SIZE], pr_error *err);

/* The id under which a message without a usable one is kept: by its content. */
void pr__dedup_stand_in(const uint8_t hash[PR_CONTENT_HASH_SIZE], char out[PR_DEDUP_ID_SIZE]);

/* Leave out of *message every field that no table of ours may hold; the body stays as it is. */
void pr__dedup_make_keepable(pr_message *message);

#endif
