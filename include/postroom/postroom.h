/*
 * Postroom: reliable messages out of the database that you already use. Includes every concept, but
 * no adapter: add sqlite.h, memory.h or database.h for those that you want.
 */
#ifndef POSTROOM_POSTROOM_H
#define POSTROOM_POSTROOM_H

#include <postroom/address.h>
#include <postroom/bus.h>
#include <postroom/clock.h>
#include <postroom/contract.h>
#include <postroom/endpoint.h>
#include <postroom/error.h>
#include <postroom/event_source.h>
#include <postroom/export.h>
#include <postroom/headers.h>
#include <postroom/limits.h>
#include <postroom/message.h>
#include <postroom/middleware.h>
#include <postroom/observer.h>
#include <postroom/operations.h>
#include <postroom/random.h>
#include <postroom/relay.h>
#include <postroom/saga.h>
#include <postroom/saga_operations.h>
#include <postroom/status.h>
#include <postroom/store.h>
#include <postroom/transport.h>
#include <postroom/unit.h>

#endif
