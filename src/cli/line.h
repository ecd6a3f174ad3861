/*
 * One line of `postroom send --lines`: a JSON object that is a message.
 */
#ifndef PR_CLI_LINE_H
#define PR_CLI_LINE_H

#include <stdbool.h>
#include <stdint.h>

#include <postroom/message.h>

#include "base/memory.h"

/* Turn a line into a message in the arena. What the line does not say is taken from defaults.
   CONTENT, LIMIT: what is wrong, by field, never the content. */
pr_status pr__line_parse(const char *text, size_t size, const pr_message *defaults, int64_t now_us,
                         uint64_t body_size_max, pr__arena *arena, pr_message *ret_message,
                         pr_error *err);

/* Whether it is JSON, of any kind. */
bool pr__line_is_json(const void *text, size_t size);

/* What content is, when nobody says: JSON, text, bytes. */
const char *pr__content_type_of(const void *body, size_t size);

#endif
