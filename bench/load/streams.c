/*
 * Load generator for streams: senders by POST and receivers by GET long poll, one request at a time each.
 *
 * Requests are encoded beforehand; only the message's number and its UUID are rewritten. Messages have to be
 * received once and in the order in which they were sent.
 *
 * Modes: one sender per stream (--senders), a sender and a receiver per stream (--pairs), and the latency of a
 * message to a waiting receiver (--rate).
 */
#include "common.h"

#define PATH "/api/v1/streams"
#define DIGITS 16                /* of the number that a message begins with */
#define MIN_PAYLOAD 20
#define MAX_PAYLOAD (1 << 14)
#define ANSWER_BYTES (1 << 16)   /* more than any answer takes */
#define BEHIND 50                /* messages of a stream that wait for its receiver at most; it would keep 100 */
#define PLENTY ",\"inMemoryStreamSize\":10000" /* of a stream whose sender does not look whether its receiver keeps up */

static struct {
    int senders, pairs, payload, port, cpu;
    const char *host;
    double duration, warm, rate;
} opt = {.payload = 64, .port = 8080, .cpu = -1, .host = "127.0.0.1", .duration = 3, .warm = 0.5};

typedef struct conn {
    int fd, is_sender;
    char *request, *number, *uuid; /* the last two are places in it */
    size_t request_len;
    uint64_t asked, answered;
    uint64_t expect;               /* number of the next message */
    struct conn *other;            /* of the same stream, if there is one */
    char *part;
    size_t part_len;
} conn;

static uint64_t sent, received, order_errors, *latencies;
static size_t latency_count, latency_cap;
static uint32_t run_id;
static int ep, is_ending;

/* ---- requests ---- */

static void put_hex(char *p, int digits, uint64_t number) {
    for (int i = digits - 1; i >= 0; i--, number >>= 4) p[i] = "0123456789abcdef"[number & 15];
}

static void write_request(conn *c, int stream) {
    char *body = room(opt.payload + 512), *b = body;
    c->request = room(opt.payload + 1024);
    if (c->is_sender) {
        b += sprintf(b, "{\"streamId\":\"bench-%08x-%04d\",\"messageUuid\":\"%08x-0000-4000-8000-000000000000\",\"message\":\"", run_id, stream, run_id ^ stream);
        for (int i = 2; i < opt.payload; i++) *b++ = 'a' + i % 26;
        b += sprintf(b, "\"%s}", opt.rate > 0 ? PLENTY : "");
        c->request_len = sprintf(c->request, "POST " PATH "/send HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n", b - body);
        memcpy(c->request + c->request_len, body, b - body);
        c->request_len += b - body;
        c->uuid = strstr(c->request, "-0000-4000-8000-") + 16;
        c->number = strstr(c->request, "\"message\":\"") + 11;
    } else c->request_len = sprintf(c->request, "GET " PATH "/receive?streamId=bench-%08x-%04d&timeoutSeconds=60 HTTP/1.1\r\nHost: localhost\r\n\r\n", run_id, stream);
    free(body);
}

static void ask(conn *c, uint64_t number) {
    if (c->is_sender) {
        put_hex(c->number, DIGITS, number);
        put_hex(c->uuid, 12, c->asked);
    }
    c->asked++;
    if (send(c->fd, c->request, c->request_len, MSG_NOSIGNAL) != (ssize_t)c->request_len) die("request: %s", strerror(errno));
}

static conn *open_one(int is_sender, int stream) {
    conn *c = room(sizeof(conn));
    c->is_sender = is_sender;
    c->fd = open_tcp(opt.host, opt.port, 0, 0);
    c->part = room(ANSWER_BYTES);
    write_request(c, stream);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &e);
    return c;
}

/* ---- answers ---- */

static size_t answer_bytes(const char *p, size_t n, size_t *head) { /* of a whole answer; 0 while it is not */
    const char *empty = memmem(p, n, "\r\n\r\n", 4);
    if (!empty) return 0;
    *head = empty + 4 - p;
    for (const char *line = memchr(p, '\n', *head); line && line < empty; line = memchr(line, '\n', p + *head - line)) {
        line++;
        if (!strncasecmp(line, "content-length:", 15)) {
            size_t all = *head + strtoull(line + 15, 0, 10);
            return n >= all ? all : 0;
        }
    }
    die("an answer without a length: %.200s", p);
}

static void on_received(conn *c, const char *body, size_t n, uint64_t stamp) {
    static const char key[] = "\"message\":\"";
    const char *found = memmem(body, n, key, sizeof key - 1);
    if (!found || body + n - found < (ptrdiff_t)sizeof key + DIGITS) die("received: %.*s", n < 300 ? (int)n : 300, body);
    char digits[DIGITS + 1] = {0};
    memcpy(digits, found + sizeof key - 1, DIGITS);
    uint64_t number = strtoull(digits, 0, 16);
    received++;
    if (opt.rate > 0) {
        if (latency_count < latency_cap) latencies[latency_count++] = stamp - number;
        return;
    }
    if (number != c->expect) order_errors++;
    c->expect = number + 1;
}

static int may_send(conn *c) { return !is_ending && c->asked == c->answered && (!c->other || c->answered < c->other->answered + BEHIND); }

static void on_answer(conn *c, const char *p, size_t head, size_t n, uint64_t stamp) {
    if (strncmp(p, "HTTP/1.1 200", 12)) die("%s: %.*s", c->is_sender ? "send" : "receive", n < 300 ? (int)n : 300, p);
    if (c->is_sender) sent++;
    else on_received(c, p + head, n - head, stamp);
    c->answered++;
    if (!c->is_sender) {
        ask(c, 0);
        if (opt.rate <= 0 && may_send(c->other)) ask(c->other, c->other->asked);
    } else if (opt.rate <= 0 && may_send(c)) ask(c, c->asked);
}

static void take_in(conn *c) {
    ssize_t k = recv(c->fd, c->part + c->part_len, ANSWER_BYTES - c->part_len, MSG_DONTWAIT);
    if (k < 0 && errno == EAGAIN) return;
    if (k <= 0) die("the server closed a %s: %s", c->is_sender ? "sender" : "receiver", k ? strerror(errno) : "end of file");
    uint64_t stamp = opt.rate > 0 ? now_ns() : 0;
    size_t at = 0, head, n;
    c->part_len += k;
    while ((n = answer_bytes(c->part + at, c->part_len - at, &head))) {
        on_answer(c, c->part + at, head, n, stamp);
        at += n;
    }
    c->part_len -= at;
    memmove(c->part, c->part + at, c->part_len);
    if (c->part_len == ANSWER_BYTES) die("an answer of more than %d bytes", ANSWER_BYTES);
}

static void take_all_in(int patience_ms) {
    struct epoll_event ev[EVENTS];
    int n = epoll_wait(ep, ev, EVENTS, patience_ms);
    for (int i = 0; i < n; i++) take_in(ev[i].data.ptr);
}

/* ---- the modes ---- */

static void measure_rate(void) { /* closed loop */
    struct { double t, cpu; uint64_t sent, received; } begin = {0}, end = {0};
    int count = opt.pairs ? opt.pairs : opt.senders;
    conn **senders = room(count * sizeof(conn *));
    for (int i = 0; i < count; i++) {
        senders[i] = open_one(1, i);
        if (!opt.pairs) continue;
        senders[i]->other = open_one(0, i);
        senders[i]->other->other = senders[i];
    }
    double t_begin = now() + opt.warm, t_end = t_begin + opt.duration, last_progress = now();
    for (int i = 0; i < count; i++) {
        if (opt.pairs) ask(senders[i]->other, 0);
        ask(senders[i], 0);
    }
    for (;;) {
        double t = now();
        if (!begin.t && t >= t_begin) begin.t = t, begin.cpu = cpu_used(), begin.sent = sent, begin.received = received;
        else if (!is_ending && t >= t_end) {
            is_ending = 1;
            end.t = t, end.cpu = cpu_used(), end.sent = sent, end.received = received;
        }
        uint64_t asked = 0, before = sent + received;
        if (is_ending) {
            for (int i = 0; i < count; i++) asked += senders[i]->asked;
            int is_done = sent == asked && (!opt.pairs || received >= asked);
            if (is_done || t - last_progress > DRAIN_SECONDS) {
                double dt = end.t - begin.t;
                int64_t lost = asked - sent + (opt.pairs ? asked - received : 0);
                printf("{\"mode\": \"streams\", \"seconds\": %.3f, \"acked_per_s\": %.1f, \"operations_per_s\": %.1f, \"sent\": %llu, \"delivered\": %llu, "
                       "\"lost\": %lld, \"order_errors\": %llu, \"load_cpu\": %.3f}\n",
                       dt, (end.sent - begin.sent) / dt, (end.sent - begin.sent + end.received - begin.received) / dt, (unsigned long long)asked,
                       (unsigned long long)received, (long long)lost, (unsigned long long)order_errors, (end.cpu - begin.cpu) / dt);
                return;
            }
        }
        take_all_in(100);
        if (sent + received != before) last_progress = now();
        else if (now() - last_progress > STALL_SECONDS) die("nothing came for %d s after %llu sends", STALL_SECONDS, (unsigned long long)sent);
    }
}

static void measure_latency(void) { /* open loop, one stream whose receiver waits */
    uint64_t gap = 1e9 / opt.rate, total = opt.rate * (opt.duration + opt.warm), skip = opt.rate * opt.warm;
    uint64_t late = 0, deadline = 0;
    double t0 = now(), c0 = cpu_used();
    conn *receiver = open_one(0, 0), *sender = open_one(1, 0);
    latency_cap = total + 16;
    latencies = room(latency_cap * 8);
    ask(receiver, 0);
    for (uint64_t next = now_ns() + 10000000; sender->asked < total || (received < total && now_ns() < deadline);) {
        uint64_t t = now_ns();
        if (sender->asked < total && t >= next) {
            if (t > next + gap) late++;
            ask(sender, next); /* the *scheduled* time: coordinated omission cannot hide a stall */
            next += gap;
            if (sender->asked == total) deadline = now_ns() + (uint64_t)(DRAIN_SECONDS * 1e9);
        }
        take_all_in(sender->asked < total ? 0 : 100 /* spins: a sleep would wake late */);
    }
    if (latency_count <= skip) die("only %zu of %llu messages arrived", latency_count, (unsigned long long)total);
    printf("{\"mode\": \"latency\", \"sent\": %llu, \"delivered\": %llu, \"lost\": %lld, \"late_sends\": %llu, ", (unsigned long long)total,
           (unsigned long long)received, (long long)(total - received), (unsigned long long)late);
    print_percentiles(latencies + skip, latency_count - skip);
    printf(", \"load_cpu\": %.3f}\n", (cpu_used() - c0) / (now() - t0));
}

static void read_options(int argc, char **argv) {
    if (argc % 2 == 0) die("every option needs a value");
    for (int i = 1; i < argc; i += 2) {
        const char *o = argv[i], *v = argv[i + 1];
        if (!strcmp(o, "--proto")) {
            if (strcmp(v, "http")) die("unknown protocol %s", v);
        } else if (!strcmp(o, "--host")) opt.host = v;
        else if (!strcmp(o, "--port")) opt.port = atoi(v);
        else if (!strcmp(o, "--senders")) opt.senders = atoi(v);
        else if (!strcmp(o, "--pairs")) opt.pairs = atoi(v);
        else if (!strcmp(o, "--payload")) opt.payload = atoi(v);
        else if (!strcmp(o, "--duration")) opt.duration = atof(v);
        else if (!strcmp(o, "--warm")) opt.warm = atof(v);
        else if (!strcmp(o, "--rate")) opt.rate = atof(v);
        else if (!strcmp(o, "--cpu")) opt.cpu = atoi(v);
        else die("unknown option %s", o);
    }
    if (opt.payload < MIN_PAYLOAD || opt.payload > MAX_PAYLOAD) die("payload must be %d to %d bytes", MIN_PAYLOAD, MAX_PAYLOAD);
    if ((opt.senders > 0) + (opt.pairs > 0) + (opt.rate > 0) != 1) die("one of --senders, --pairs and --rate is needed");
    if (opt.senders > 9999 || opt.pairs > 9999) die("counts must be 1 to 9999");
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    run_id = make_run_id();
    pin_to(opt.cpu);
    ep = epoll_create1(0);
    if (opt.rate > 0) measure_latency();
    else measure_rate();
    return 0;
}
