/*
 * A process of four services: an order reserves stock, charges a card and ships; when the card is
 * refused, the stock is given back. order.c is the saga, services.c what it commands, main.c runs
 * all of them in one process; each could be a program of its own.
 */
#ifndef EXAMPLES_ORDER_SAGA_H
#define EXAMPLES_ORDER_SAGA_H

#include <postroom/postroom.h>

#define ORDER_PLACED  "urn:message:shop:order-placed"
#define RESERVE       "urn:message:shop:stock-reserve"
#define RESERVED      "urn:message:shop:stock-reserved"
#define RELEASE       "urn:message:shop:stock-release"
#define RELEASED      "urn:message:shop:stock-released"
#define CHARGE        "urn:message:shop:payment-charge"
#define CHARGED       "urn:message:shop:payment-charged"
#define REFUSED       "urn:message:shop:payment-refused"
#define SHIP          "urn:message:shop:shipping-ship"
#define SHIPPED       "urn:message:shop:shipping-shipped"
#define ORDER_TIMEOUT "urn:message:shop:order-timeout"

/* The body of every message. */
typedef struct order_message {
    int64_t order;
    int64_t cents;
} order_message;

/* Registers the contracts of all messages. */
pr_status order_contracts(pr_contracts *contracts, pr_error *err);
/* Enqueue one in the unit, in order with the others of its order. */
pr_status order_send(pr_unit *unit, const char *type, const order_message *body, pr_error *err);
/* The saga's runtime. */
pr_status order_saga(pr_contracts *contracts, pr_saga **ret_saga, pr_error *err);

/* Handlers of the services' endpoints. */
pr_handled stock_handle(void *user, pr_scope *scope);
pr_handled payment_handle(void *user, pr_scope *scope);
pr_handled shipping_handle(void *user, pr_scope *scope);

#endif
