/*
 * The transport suite on the memory transport.
 */
#include <stdlib.h>

#include <postroom/memory.h>

#include "contract/transport_provider.h"
#include "transport/memory/inspect.h"

#define BODY_SIZE_MAX (1024 * 1024)

static pr_status begin(void **ret_world, pr_error *err)
{
    pr_memory_broker *broker = NULL;
    pr_status status = pr_memory_broker_new(&broker, err);
    if (status == PR_OK)
        pr__memory_limits_set(broker, 0, 0, BODY_SIZE_MAX);
    *ret_world = broker;
    return status;
}

static pr_status connect_to(void *world, uint32_t window, pr_transport **ret_transport,
                            pr_error *err)
{
    pr_memory_options options = {.size = (uint32_t)sizeof(options), .window = window};
    return pr_memory_transport_new(world, &options, ret_transport, err);
}

static void vanish(void *world, pr_subscription *subscription)
{
    (void)world;
    pr__memory_subscription_cut(subscription);
}

static pr_status dead_count(void *world, const char *endpoint, size_t *ret_count, pr_error *err)
{
    (void)err;
    pr__memory_counts counts;
    if (!pr__memory_counts_get(world, endpoint, false, &counts))
        return PR_E_NOT_FOUND;
    *ret_count = counts.dead;
    return PR_OK;
}

static void end(void *world)
{
    pr_memory_broker_free(world);
}

int main(void)
{
    const transport_provider provider = {
        .name = "transport on memory",
        .scheme = "memory",
        .address = "memory",
        .ordered = true,
        .body_size_max = BODY_SIZE_MAX,
        .lease_ms = 500,
        .patience_ms = 10000,
        .begin = begin,
        .connect = connect_to,
        .vanish = vanish,
        .dead_count = dead_count,
        .end = end,
    };
    return transport_contract_run(&provider);
}
