/*
 * Addresses inside of core.
 */
#ifndef PR_CORE_ADDRESS_H
#define PR_CORE_ADDRESS_H

#include <stddef.h>

#include <postroom/address.h>

/* The address of an endpoint's queue on a transport. CONTENT: the id cannot stand in an address. */
pr_status pr__address_of_endpoint(const char *transport, const char *endpoint, char *out,
                                  size_t out_size, pr_error *err);
/* The topic of a type on a transport. CONTENT: the type is malformed. */
pr_status pr__address_of_topic(const char *transport, const char *type, char *out, size_t out_size,
                               pr_error *err);

#endif
