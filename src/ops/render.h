/*
 * JSON of what operations tell, whoever shows it.
 */
#ifndef PR_OPS_RENDER_H
#define PR_OPS_RENDER_H

#include <stdbool.h>

#include <postroom/operations.h>
#include <postroom/saga_operations.h>

#include "base/json_writer.h"

/* One object. With body: as text when it is JSON or text by its content type and valid UTF-8, else
   base64 under "body_base64". */
void pr__render_record(pr__json *json, const pr_record *record, bool with_body);
void pr__render_status(pr__json *json, const pr_status_report *report);
void pr__render_explanation(pr__json *json, const char *message_id,
                            const pr_explanation *explanation);
/* One object. With state: as it is when it is JSON, else base64 under "state_base64". */
void pr__render_saga(pr__json *json, const pr_saga_record *record, bool with_state);

#endif
