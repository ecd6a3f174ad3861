/*
 * The transport suite on the transport that examples/transport shows to be copied.
 */
#include "../../examples/transport/shelf.h"
#include "contract/transport_provider.h"

static pr_status begin(void **ret_world, pr_error *err)
{
    *ret_world = shelf_new();
    return *ret_world ? PR_OK : pr_error_set(err, PR_E_NOMEM, PR_RETRY_SAME, "test", "no memory");
}

static pr_status connect_to(void *world, uint32_t window, pr_transport **ret_transport,
                            pr_error *err)
{
    return shelf_connect(world, window, ret_transport, err);
}

static pr_status dead_count(void *world, const char *endpoint, size_t *ret_count, pr_error *err)
{
    const shelf_queue *queue = shelf_find(world, endpoint, 0);
    if (!queue)
        return pr_error_set(err, PR_E_NOT_FOUND, PR_RETRY_NEVER, "test", "no queue");
    *ret_count = queue->dead_count;
    return PR_OK;
}

static void end(void *world)
{
    shelf_free(world);
}

int main(void)
{
    const transport_provider provider = {
        .name = "transport of one's own",
        .scheme = SHELF_NAME,
        .address = SHELF_NAME,
        .ordered = true,
        .body_size_max = SHELF_BODY_MAX,
        .lease_ms = 500,
        .patience_ms = 10000,
        .begin = begin,
        .connect = connect_to,
        .dead_count = dead_count,
        .end = end,
    };
    return transport_contract_run(&provider);
}
