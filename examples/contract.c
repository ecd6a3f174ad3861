/*
 * A contract: a table that says how a C struct lies in the JSON of a message. Encoding and decoding
 * need no code of their own, and a body that does not fit is refused with the name of the field.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <postroom/postroom.h>

typedef struct order_placed {
    const char *customer;
    int64_t amount;
    bool gift;
    bool has_note; /* whether the optional note is there */
    const char *note;
} order_placed;

static const pr_field order_fields[] = {
    {.name = "customer", .kind = PR_FIELD_TEXT, .offset = offsetof(order_placed, customer)},
    {.name = "amount", .kind = PR_FIELD_INT64, .offset = offsetof(order_placed, amount)},
    {.name = "gift", .kind = PR_FIELD_BOOL, .offset = offsetof(order_placed, gift)},
    {.name = "note",
     .kind = PR_FIELD_TEXT,
     .flags = PR_FIELD_OPTIONAL,
     .offset = offsetof(order_placed, note),
     .presence_offset = offsetof(order_placed, has_note)},
    {.name = NULL},
};

static const pr_contract order_contract =
    PR_CONTRACT(.type_version = 1, .type = "urn:message:shop:order-placed",
                .kind = PR_CONTRACT_INTEGRATION_EVENT, .fields = order_fields,
                .object_size = sizeof(order_placed));

static int fail(const pr_error *err)
{
    fprintf(stderr, "%s (%s)\n", err->message, pr_status_text(err->status));
    return EXIT_FAILURE;
}

int main(void)
{
    pr_error err = PR_ERROR_INIT;
    order_placed order = {.customer = "Ada", .amount = 1000, .gift = true};
    void *body = NULL;
    size_t size = 0;
    pr_decoded *decoded = NULL;

    if (pr_contract_encode(&order_contract, &order, &body, &size, &err))
        return fail(&err);
    printf("%.*s\n", (int)size, (const char *)body);

    pr_message message =
        PR_MESSAGE(.id = "0197a5c0-0000-7000-8000-000000000001", .type = order_contract.type,
                   .type_version = 1, .body = body, .body_size_bytes = size);
    if (pr_contract_decode(&order_contract, &message, &decoded, &err))
        return fail(&err);
    const order_placed *back = pr_decoded_object(decoded);
    printf("%s %d %s\n", back->customer, (int)back->amount, back->has_note ? back->note : "-");
    pr_decoded_free(decoded);
    pr_free(body);

    static const char wrong[] = "{\"customer\":\"Ada\",\"amount\":\"much\",\"gift\":false}";
    message.body = wrong;
    message.body_size_bytes = sizeof(wrong) - 1;
    if (pr_contract_decode(&order_contract, &message, &decoded, &err) == PR_OK)
        return EXIT_FAILURE;
    printf("refused: %s\n", pr_status_text(err.status));
    return EXIT_SUCCESS;
}
