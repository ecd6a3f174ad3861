/*
 * The wire format: a message as AMQP properties and headers, and back. docs/wire.md is its table.
 *
 * Pure: no connection, no clock. What arrives may be anything.
 */
#ifndef PR_TRANSPORT_AMQP_WIRE_H
#define PR_TRANSPORT_AMQP_WIRE_H

#include <amqp.h>
#include <amqp_framing.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/message.h>

#include "base/buffer.h"
#include "base/memory.h"

#define PR__WIRE_PREFIX        "postroom-"
#define PR__WIRE_TYPE_VERSION  "postroom-type-version"
#define PR__WIRE_DESTINATION   "postroom-destination"
#define PR__WIRE_SOURCE        "postroom-source"
#define PR__WIRE_KEY           "postroom-key"
#define PR__WIRE_TENANT        "postroom-tenant"
#define PR__WIRE_CAUSATION_ID  "postroom-causation-id"
#define PR__WIRE_OCCURRED_AT   "postroom-occurred-at"
#define PR__WIRE_EXPIRES_AT    "postroom-expires-at"
#define PR__WIRE_HEADERS       "postroom-headers"
#define PR__WIRE_TRACEPARENT   "traceparent"
#define PR__WIRE_TRACESTATE    "tracestate"
#define PR__WIRE_CE_COLON      "cloudEvents:"
#define PR__WIRE_CE_UNDERSCORE "cloudEvents_"

#define PR__WIRE_SHORT_MAX     255 /* bytes of a short string of AMQP 0-9-1 */
#define PR__WIRE_NEST_MAX      12  /* tables and arrays within a header that arrives */

/* ---- out ---- */

/* Memory that one message after the other is encoded with. */
typedef struct pr__wire_out {
    amqp_table_entry_t *entries;
    size_t count, capacity;
    size_t table_size; /* encoded bytes of the table so far */
    json_t *json;      /* the headers of the message: entries point into it */
    pr__buffer bytes;  /* decoded base64, in one block that does not move */
    bool failed;       /* out of memory */
    char time[32];     /* of a CloudEvent */
} pr__wire_out;

void pr__wire_out_done(pr__wire_out *out);

/* Properties of a message; they point into message and out until the next call. frame_max bounds
   the content header. CONTENT: it cannot be said. LIMIT: it is too large, in any frame. NOMEM. */
pr_status pr__wire_encode(pr__wire_out *out, const pr_message *message, bool cloudevents,
                          size_t frame_max, amqp_basic_properties_t *ret_properties, pr_error *err);

/* ---- in ---- */

/* A message that arrived, in one block. */
typedef struct pr__wire_in {
    pr_message message; /* id and type may be NULL: of others */
    uint32_t delivery_count;
    uint64_t body_filled;
    unsigned char *body; /* message.body_size_bytes */
} pr__wire_in;

/* The message without its body, which is filled in afterwards. CONTENT: it cannot be held, say why.
   NOMEM. */
pr_status pr__wire_decode(const amqp_basic_properties_t *properties, uint64_t body_size,
                          pr__wire_in **ret_in, pr_error *err);
/* false: more than was announced. */
bool pr__wire_fill(pr__wire_in *in, amqp_bytes_t fragment);
void *pr__wire_in_free(pr__wire_in *in); /* accepts NULL, returns NULL */

/* Headers of others as our JSON text; entries that `skip` names are left out. CONTENT: nested too
   deeply, a name with a NUL. */
pr_status pr__wire_headers_json(const amqp_table_t *table,
                                bool (*skip)(void *user, const amqp_table_entry_t *entry),
                                void *user, const amqp_basic_properties_t *properties,
                                pr__buffer *json, pr_error *err);

/* Headers that the broker or others set and obey: never sent as a copy of a header of ours. */
bool pr__wire_is_brokers(const char *name, size_t size);
static inline bool pr__wire_name_is(amqp_bytes_t name, const char *text)
{
    size_t i = 0;
    const char *bytes = name.bytes;
    for (; i < name.len && text[i] != '\0'; i++) {
        if (bytes[i] != text[i])
            return false;
    }
    return i == name.len && text[i] == '\0';
}

DEFINE_AUTO(pr__wire_in, pr__wire_in_free);

#endif
