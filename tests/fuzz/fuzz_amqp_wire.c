/*
 * Header tables to envelopes: the properties of a message as they stand in a frame, decoded by
 * librabbitmq and then by us. What we hold we can send again, and it comes back the same.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/text.h"
#include "transport/amqp/wire.h"

#define FRAME_MAX 131072

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int condition)
{
    if (!condition)
        abort();
}

static void same_text(const char *a, const char *b)
{
    must(!a == !b && (!a || strcmp(a, b) == 0));
}

/* Out and in again, where it can be said at all. */
static void there_and_back(const pr_message *message)
{
    static char encoded[2 * FRAME_MAX];
    pr__wire_out out = {.entries = NULL};
    amqp_basic_properties_t properties;
    pr_error err = PR_ERROR_INIT;
    if (pr__wire_encode(&out, message, /* cloudevents= */ true, FRAME_MAX, &properties, &err) ==
        PR_OK) {
        amqp_pool_t pool;
        void *decoded = NULL;
        pr__wire_in *again = NULL;
        amqp_bytes_t bytes = {sizeof(encoded), encoded};
        int used = amqp_encode_properties(AMQP_BASIC_CLASS, &properties, bytes);
        must(used > 0 && used <= FRAME_MAX);
        bytes.len = (size_t)used;
        init_amqp_pool(&pool, 4096);
        must(amqp_decode_properties(AMQP_BASIC_CLASS, &pool, bytes, &decoded) == 0);
        must(pr__wire_decode(decoded, 0, &again, &err) == PR_OK);
        same_text(again->message.id, message->id);
        same_text(again->message.type, message->type);
        same_text(again->message.key, message->key);
        same_text(again->message.headers, message->headers);
        must(again->message.type_version == message->type_version);
        must(message->expires_at_us == again->message.expires_at_us);
        pr__wire_in_free(again);
        empty_amqp_pool(&pool);
    }
    pr__wire_out_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    union {
        const uint8_t *in;
        void *out;
    } u = {.in = data};
    amqp_pool_t pool;
    void *decoded = NULL;
    init_amqp_pool(&pool, 4096);
    if (size > 0 && amqp_decode_properties(AMQP_BASIC_CLASS, &pool, (amqp_bytes_t){size, u.out},
                                           &decoded) == 0) {
        pr_error err = PR_ERROR_INIT;
        pr__wire_in *in = NULL;
        uint64_t body_size = size % 7;
        pr_status status = pr__wire_decode(decoded, body_size, &in, &err);
        must(status == PR_OK || (status == PR_E_CONTENT && !in && err.message[0] != '\0'));
        if (in) {
            const pr_message *message = &in->message;
            must(pr__wire_fill(in, (amqp_bytes_t){body_size, u.out}));
            must(!pr__wire_fill(in, (amqp_bytes_t){1, u.out}));
            must(message->type_version > 0);
            if (message->headers && !pr__text_starts_with(message->headers, "{}"))
                must(message->headers[0] != '\0' || strlen(message->headers) == 0);
            there_and_back(message);
        }
        pr__wire_in_free(in);
    }
    empty_amqp_pool(&pool);
    return 0;
}
