/*
 * The cases of the whole way, for the program with the real broker.
 */
#ifndef PR_TESTS_AMQP_PATH_CASES_H
#define PR_TESTS_AMQP_PATH_CASES_H

#include "amqp/ground.h"
#include "contract/store_provider.h"

void the_whole_way(ground *at, const store_provider *provider);
void an_alarm_touches_no_database(ground *at, const store_provider *provider);
void the_way_outlives_a_restart(ground *at, const store_provider *provider);
void a_clean_stop_loses_and_charges_nothing(ground *at, const store_provider *provider);
void another_language_speaks_it(ground *at, const store_provider *provider);
void strangers_end_in_dead_once(ground *at, const store_provider *provider);

#endif
