/*
 * The operator of a command, taken from the user database when not given: a user without an entry
 * there is named by number.
 */
#include "cli/operator.h"

#include <pwd.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/output.h"
#include "cli/wiring.h"

const char *pr__operator_who(const pr__operator *by, char memory[PR__WHO_SIZE])
{
    struct passwd entry, *found = NULL;
    char text[2048];
    if (!pr__text_empty(by->who))
        return by->who;
    if (getpwuid_r(geteuid(), &entry, text, sizeof(text), &found) == 0 && found)
        pr__format(memory, PR__WHO_SIZE, "%s", found->pw_name);
    else
        pr__format(memory, PR__WHO_SIZE, "uid %u", (unsigned)geteuid());
    return memory;
}

pr__exit pr__operator_store(pr__cli *cli, const pr__common *common, const pr__operator *by,
                            pr_store **ret_store)
{
    pr_error err = PR_ERROR_INIT;
    pr__store_request request = {.common = common};
    if (!by->reason)
        return pr__report_usage(cli, "a reason is needed for the audit; add --reason TEXT");
    if (pr__wiring_store(&request, ret_store, &err) != PR_OK)
        return pr__report_error(cli, &err);
    return PR__EXIT_OK;
}

void pr__operator_done(pr__cli *cli, const char *verb, const char *id)
{
    AUTO_BUFFER out = PR_BUFFER_INIT;
    pr__json json;
    if (!cli->json) {
        pr__print(cli, "%s %s", verb, id);
        return;
    }
    pr__json_init(&json, &out);
    pr__json_object_begin(&json);
    pr__json_member_text(&json, "message_id", id);
    pr__json_member_text(&json, "done", verb);
    pr__json_object_end(&json);
    pr__print_buffer(cli, &out);
}
