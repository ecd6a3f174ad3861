/*
 * The names of the states and boxes.
 *
 * Invariant: text and parse are a round trip, and every state of pr_state has a name.
 * It knows nothing of how a state comes about: that is the stores' business.
 */
#include "port/state.h"

#include "base/text.h"

const char *pr__state_text(pr_state state)
{
    switch (state) {
    case PR_STATE_PENDING:
        return "pending";
    case PR_STATE_PUBLISHING:
        return "publishing";
    case PR_STATE_PUBLISHED:
        return "published";
    case PR_STATE_FAILED:
        return "failed";
    case PR_STATE_HELD:
        return "held";
    case PR_STATE_DELAYED:
        return "delayed";
    case PR_STATE_DEAD:
        return "dead";
    }
    return "unknown";
}

const char *pr__box_text(pr_box box)
{
    return box == PR_BOX_INBOX ? "inbox" : "outbox";
}

bool pr__state_parse(const char *text, pr_state *ret_state)
{
    for (int i = PR_STATE_PENDING; i < PR_STATE_COUNT; i++) {
        if (pr__text_equal(text, pr__state_text((pr_state)i))) {
            *ret_state = (pr_state)i;
            return true;
        }
    }
    return false;
}

bool pr__record_blockable(const pr_record *record)
{
    switch (record->state) {
    case PR_STATE_PENDING:
    case PR_STATE_FAILED:
    case PR_STATE_HELD:
        return record->message.key && *record->message.key;
    case PR_STATE_PUBLISHING:
    case PR_STATE_PUBLISHED:
    case PR_STATE_DELAYED:
    case PR_STATE_DEAD:
        return false;
    }
    return false;
}

const char *pr__order_text(pr_order order)
{
    switch (order) {
    case PR_ORDER_SKIP:
        return "skip";
    case PR_ORDER_HALT:
        return "halt";
    case PR_ORDER_DEFAULT:
    case PR_ORDER_HOLD:
        return "hold";
    }
    return "hold";
}

pr_order pr__order_parse(const char *text)
{
    if (pr__text_equal(text, "skip"))
        return PR_ORDER_SKIP;
    return pr__text_equal(text, "halt") ? PR_ORDER_HALT : PR_ORDER_HOLD;
}
