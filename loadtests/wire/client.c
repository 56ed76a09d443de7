#include "client.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "fault.h"
#include "login.h"
#include "options.h"

enum { HEADER_SIZE = 8, SASL_PROTOCOL = 3, SHOWN = 200 };

static void unexpected(const struct client *l, const char *what) {
    fatal("client %u at step %s: unexpected: %s", l->c.index, l->step->name, what);
}

static void enter(struct client *l, const struct step *step) {
    for (l->step = step; step->send && !stopped(); l->step = ++step) {
        l->awaited = step->answers;
        l->left = step->times * (unsigned)__builtin_popcount(step->answers);
        step->send(l);
        if (step->answers) return;
    }
    l->awaited = 0;
}

void client_start(struct client *l, const struct step *script) { enter(l, script); }

void client_watch(struct client *l, int epoll, uint32_t events) {
    if (l->c.interest == events) return;
    struct epoll_event event = {.events = events, .data.u32 = l->c.index};
    if (epoll_ctl(epoll, l->c.interest ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, l->c.fd, &event))
        fatal("epoll_ctl: %s", strerror(errno));
    l->c.interest = events;
}

static void answered(struct client *l, enum answer answer, const char *what) {
    if (!(l->awaited & answer)) {
        unexpected(l, what);
        return;
    }
    if (l->step->times) l->left--;
    else l->awaited &= ~(unsigned)answer;
    if (l->step->times ? l->left == 0 : l->awaited == 0) enter(l, l->step + 1);
}

/* Report a detach, end or close with its error. */
static void ended(struct client *l, const char *what, struct bytes error) {
    char text[SHOWN + 32];
    int n = snprintf(text, sizeof text, "%s: ", what);
    for (size_t i = 0; i < error.length && n < SHOWN; i++)
        text[n++] = error.at[i] < ' ' || error.at[i] > '~' ? ' ' : (char)error.at[i];
    text[n] = 0;
    unexpected(l, text);
}

static void on_end(struct client *l, int code, struct cursor *f) {
    struct bytes error;
    if (code == DETACH) field_skip(f, 2);
    bool failed = field_described(f, &error) == ERROR;
    if (failed || code == END) ended(l, code == DETACH ? "detach" : code == END ? "end" : "close", error);
    else if (code == DETACH) answered(l, ON_DETACH, "detach");
    else answered(l, ON_CLOSE, "close");
}

static void on_attach(struct client *l, struct cursor *f) {
    struct cursor source;
    field_skip(f, 1);
    uint32_t handle = field_uint(f, 0);
    if (field_bool(f, false)) {
        l->sender_handle = handle;
    } else {
        field_skip(f, 2);
        struct bytes address = field_list(f, &source) ? field_text(&source) : (struct bytes){0};
        if (address.length < ADDRESS_ROOM) {
            memcpy(l->reply_to, address.at ? address.at : (const uint8_t *)"", address.length);
            l->reply_to[address.length] = 0;
        }
        field_skip(f, 3);
        l->incoming_count = field_uint(f, 0);
    }
    answered(l, ON_ATTACH, "attach");
}

static void on_flow(struct client *l, struct cursor *f) {
    uint32_t handle, count = 0, credit = 0;
    field_skip(f, 4);
    if (!field_optional_uint(f, &handle) || handle != l->sender_handle) return;
    field_optional_uint(f, &count);
    field_optional_uint(f, &credit);
    l->c.credit_limit = count + credit;
    if (credit && (l->awaited & ON_CREDIT)) answered(l, ON_CREDIT, "flow");
}

static void on_transfer(struct client *l, struct cursor *f) {
    field_skip(f, 1);
    l->delivery = field_uint(f, 0);
    field_skip(f, 2);
    bool settled = field_bool(f, false), more = field_bool(f, false);
    if (settled || more) unexpected(l, settled ? "settled transfer" : "transfer in several frames");
    l->incoming_count++;
    answered(l, ON_TRANSFER, "transfer");
}

static void on_disposition(struct client *l, struct cursor *f) {
    struct bytes inside;
    field_skip(f, 3);
    bool settled = field_bool(f, false);
    if (!settled || field_described(f, &inside) != ACCEPTED) unexpected(l, "outcome other than settled and accepted");
    else answered(l, ON_ACCEPTED, "disposition");
}

static void on_sasl(struct client *l, int code, struct cursor *f) {
    switch (code) {
    case MECHANISMS: answered(l, ON_MECHANISMS, "mechanisms"); break;
    case CHALLENGE:
        if (options.user && (l->awaited & ON_OUTCOME)) login_respond(l, field_text(f));
        else unexpected(l, "challenge");
        break;
    case OUTCOME:
        if (field_uint(f, 1) != 0) unexpected(l, "refused login");
        else if (login_accepted(l, field_text(f))) answered(l, ON_OUTCOME, "outcome");
        break;
    default: unexpected(l, "malformed SASL frame");
    }
}

static void on_frame(struct connection *c, const uint8_t *frame, uint32_t size, uint64_t now) {
    struct client *l = (struct client *)c;
    struct cursor f = {0};
    struct bytes payload = {0};
    (void)now;
    if (size == HEADER_SIZE && !memcmp(frame, "AMQP", 4)) {
        if (frame[4] == SASL_PROTOCOL) answered(l, ON_SASL_HEADER, "SASL header");
        else answered(l, ON_HEADER, "AMQP header");
        return;
    }
    if (!l->joined) {
        on_sasl(l, sasl_open(frame, size, &f), &f);
        return;
    }
    int code = frame_open(frame, size, &f, &payload);
    if (code == TRANSFER) c->next_incoming++;
    if (client_done(l) && l->serve && (code == TRANSFER || code == DISPOSITION)) {
        l->serve(l, code, &f, payload);
        return;
    }
    switch (code) {
    case 0: break; /* a heartbeat */
    case OPEN:
        field_skip(&f, 4);
        c->heartbeat_ms = field_uint(&f, 0);
        answered(l, ON_OPEN, "open");
        break;
    case BEGIN:
        field_skip(&f, 1);
        c->next_incoming = field_uint(&f, 0);
        answered(l, ON_BEGIN, "begin");
        break;
    case ATTACH: on_attach(l, &f); break;
    case FLOW:
        on_flow(l, &f);
        if (client_done(l) && l->serve) l->serve(l, code, &f, payload);
        break;
    case TRANSFER: on_transfer(l, &f); break;
    case DISPOSITION: on_disposition(l, &f); break;
    case DETACH: case END: case CLOSE: on_end(l, code, &f); break;
    default: unexpected(l, "malformed frame");
    }
    if (f.bad) unexpected(l, "malformed fields");
}

const struct handlers *client_handlers(void) {
    static const struct handlers handlers = {.frame = on_frame};
    return &handlers;
}
