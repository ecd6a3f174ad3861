/*
 * What a transport gives the conformance suite. The suite includes no other header of a transport;
 * a transport of your own passes it by filling this table and calling transport_contract_run().
 */
#ifndef PR_TESTS_TRANSPORT_PROVIDER_H
#define PR_TESTS_TRANSPORT_PROVIDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/transport.h>

typedef struct transport_provider {
    const char *name;       /* of the suite's run, such as "memory" */
    const char *scheme;     /* ops->scheme of the transport that must really be in use */
    const char *address;    /* the transport's name in addresses */
    bool ordered;           /* order per key holds across competing consumers */
    uint64_t body_size_max; /* one byte more is TOO_LARGE */
    int64_t lease_ms;       /* of a holder that is going to vanish: short */
    int64_t patience_ms;    /* what was promised has to come within this time */

    /* A place of its own for each case: an empty broker or database. */
    pr_status (*begin)(void **ret_world, pr_error *err);
    /* A transport of its own onto the world, as another process would have it. */
    pr_status (*connect)(void *world, uint32_t window, pr_transport **ret_transport, pr_error *err);
    /* The holder of a subscription vanishes without closing it: its connection is cut, or (NULL)
       it is simply never heard of again. The suite frees it later. */
    void (*vanish)(void *world, pr_subscription *subscription);
    /* How many messages stand in the endpoint's dead queue. */
    pr_status (*dead_count)(void *world, const char *endpoint, size_t *ret_count, pr_error *err);
    void (*end)(void *world);
} transport_provider;

/* Run every case against the provider; the number of failed ones. */
int transport_contract_run(const transport_provider *provider);

#endif
