/*
 * Your own codec: a message in Protobuf, beside contracts in JSON. The codec belongs to the content
 * type; handlers and senders see the struct that protoc-c made and know nothing of bytes.
 */
#include <stdio.h>
#include <stdlib.h>

#include <postroom/postroom.h>

#include "order.pb-c.h"

#define PROTOBUF "application/x-protobuf"

static pr_status encode(void *user, const pr_contract *contract, const void *object,
                        void **ret_body, size_t *ret_size, pr_error *err)
{
    const Shop__OrderPlaced *order = object;
    size_t size = shop__order_placed__get_packed_size(order);
    uint8_t *body = pr_alloc(size); /* the library's from now on */
    (void)user, (void)contract;
    if (!body)
        return pr_error_set(err, PR_E_NOMEM, PR_RETRY_SAME, "codec", "out of memory");
    shop__order_placed__pack(order, body);
    *ret_body = body;
    *ret_size = size;
    return PR_OK;
}

/* What protobuf-c makes lies in the decoded object's own memory, so nobody has to free it. */
static void *take(void *decoded, size_t size)
{
    return pr_decoded_alloc(decoded, size);
}

static void keep(void *decoded, void *memory)
{
    (void)decoded, (void)memory;
}

static pr_status decode(void *user, const pr_contract *contract, const pr_message *message,
                        pr_decoded *decoded, void *object, pr_error *err)
{
    ProtobufCAllocator allocator = {.alloc = take, .free = keep, .allocator_data = decoded};
    Shop__OrderPlaced *order =
        shop__order_placed__unpack(&allocator, (size_t)message->body_size_bytes, message->body);
    (void)user, (void)contract;
    if (!order) /* permanent: the message is dead at once */
        return pr_error_set(err, PR_E_CONTENT, PR_RETRY_NEVER, "codec", "no valid OrderPlaced");
    *(Shop__OrderPlaced *)object = *order;
    return PR_OK;
}

static const pr_codec protobuf = {.size = (uint32_t)sizeof(pr_codec),
                                  .content_type = PROTOBUF,
                                  .encode = encode,
                                  .decode = decode};
static const pr_codec *const codecs[] = {&protobuf, NULL};

static const pr_contract order_placed =
    PR_CONTRACT(.type = "urn:message:shop:order-placed", .type_version = 1,
                .kind = PR_CONTRACT_INTEGRATION_EVENT, .object_size = sizeof(Shop__OrderPlaced),
                .codecs = codecs);

static void must(pr_status status, const char *what, const pr_error *err)
{
    if (status == PR_OK)
        return;
    fprintf(stderr, "%s: %s (%s)\n", what, err->message, pr_status_text(status));
    exit(EXIT_FAILURE);
}

int main(void)
{
    pr_error err = PR_ERROR_INIT;
    pr_contracts *contracts = NULL;
    pr_decoded *decoded = NULL;
    void *body = NULL;
    size_t size = 0;
    char cup[] = "cup", customer[] = "Ada", *articles[] = {cup};
    Shop__OrderPlaced order = SHOP__ORDER_PLACED__INIT;
    order.customer = customer;
    order.amount_cents = 1000;
    order.n_articles = 1;
    order.articles = articles;

    must(pr_contracts_new(&contracts, &err), "contracts", &err);
    must(pr_contracts_register(contracts, &order_placed, &err), "register", &err);
    must(pr_contract_encode(&order_placed, &order, &body, &size, &err), "encode", &err);
    printf("%s, %d bytes\n", pr_contract_content_type(&order_placed), (int)size);

    /* an endpoint with these contracts does this, and gives the object to the handler */
    pr_message message =
        PR_MESSAGE(.type = order_placed.type, .type_version = 1, .content_type = PROTOBUF,
                   .body = body, .body_size_bytes = size);
    must(pr_contracts_decode(contracts, &message, &decoded, &err), "decode", &err);
    const Shop__OrderPlaced *back = pr_decoded_object(decoded);
    printf("%s %d %s\n", back->customer, (int)back->amount_cents, back->articles[0]);
    pr_decoded_free(decoded);

    message.body_size_bytes--;
    if (pr_contracts_decode(contracts, &message, &decoded, &err) == PR_OK)
        return EXIT_FAILURE;
    printf("cut short: %s\n", err.message);
    pr_free(body);
    pr_contracts_free(contracts);
    return EXIT_SUCCESS;
}
