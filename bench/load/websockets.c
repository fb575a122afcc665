/*
 * Load generator for publish and subscribe over WebSocket: Penstock's /ws, and nchan.
 *
 * The publisher sends slices of a blob of frames that were encoded and masked beforehand. Subscribers recv() into
 * one large buffer and parse each frame's length and the first characters of its data. Flow control is a window
 * over *delivered* messages, so that no subscriber falls behind. The data is one JSON string for both, which begins
 * with its index in the blob or with its scheduled send time; Penstock wraps it in an event.
 *
 * Modes: throughput (default), latency (--rate), idle topics with one subscriber each (--idle).
 */
#include "common.h"

enum { PENSTOCK, NCHAN };
enum { TEXT = 1, CLOSE = 8, PING = 9 };

#define MASK "\x5a\x17\xc3\x2e"
#define DIGITS 16                /* of the number that a message begins with */
#define MIN_PAYLOAD 20
#define MAX_PAYLOAD (1 << 15)
#define BLOB_MESSAGES 4096
#define ANSWER_BYTES (1 << 16)

static struct {
    int proto, subs, payload, port, cpu, idle, hold;
    const char *host;
    double duration, warm, rate;
    uint64_t window;
} opt = {.subs = 1, .payload = 64, .window = 1000, .port = 8080, .cpu = -1, .host = "127.0.0.1", .duration = 3, .warm = 0.5};

typedef struct {
    int fd, is_pub, wants_out;
    uint64_t got;
    uint64_t expect;     /* place in the blob of the next message */
    char *part;          /* the start of a frame that a recv() cut */
    size_t part_len, part_cap;
} conn;

static uint64_t delivered, acked, order_errors, format_errors;
static uint64_t *latencies;
static size_t latency_count, latency_cap;
static char *blob;        /* frames of the publisher, sent over and over */
static size_t frame_len, blob_len, blob_off;
static uint64_t sent_bytes;
static uint32_t run_id;
static char rbuf[2 * READ_BYTES];
static int ep;

/* ---- messages and frames ---- */

static void topic_of(char *out, int number) { sprintf(out, "bench-%08x-%05d", run_id, number); }

static void put_number(char *p, uint64_t number) {
    for (int i = DIGITS - 1; i >= 0; i--, number >>= 4) p[i] = "0123456789abcdef"[number & 15];
}

static int take_number(const char *p, uint64_t *number) {
    *number = 0;
    for (int i = 0; i < DIGITS; i++) {
        int digit = p[i] >= '0' && p[i] <= '9' ? p[i] - '0' : p[i] >= 'a' && p[i] <= 'f' ? p[i] - 'a' + 10 : -1;
        if (digit < 0) return 0;
        *number = *number << 4 | digit;
    }
    return 1;
}

static size_t put_frame(char *p, int opcode, const char *text, size_t n) {
    size_t i = 0;
    p[i++] = 0x80 | opcode;
    if (n < 126) p[i++] = 0x80 | n;
    else {
        p[i++] = 0x80 | 126;
        p[i++] = n >> 8;
        p[i++] = n & 255;
    }
    memcpy(p + i, MASK, 4);
    i += 4;
    for (size_t k = 0; k < n; k++) p[i + k] = text[k] ^ MASK[k % 4];
    return i + n;
}

static size_t put_publish(char *p, const char *topic, uint64_t number) { /* as a masked frame */
    static char text[MAX_PAYLOAD + 512];
    size_t i = opt.proto == PENSTOCK ? sprintf(text, "{\"type\":\"publish\",\"topic\":\"%s\",\"data\":", topic) : 0;
    char *data = text + i;
    for (int k = 0; k < opt.payload; k++) data[k] = 'a' + k % 26;
    data[0] = data[opt.payload - 1] = '"';
    put_number(data + 1, number);
    i += opt.payload;
    if (opt.proto == PENSTOCK) text[i++] = '}';
    return put_frame(p, TEXT, text, i);
}

/* Where a frame's text begins and how long it is; 0 while its header is not whole. */
static int take_header(const char *p, size_t n, size_t *start, uint64_t *length) {
    if (n < 2) return 0;
    *length = p[1] & 127;
    *start = *length == 126 ? 4 : *length == 127 ? 10 : 2;
    if (n < *start) return 0;
    if (*start > 2) {
        *length = 0;
        for (size_t i = 2; i < *start; i++) *length = *length << 8 | (unsigned char)p[i];
    }
    return 1;
}

static int is_type(const char *p, size_t n, const char *type) { /* of a message of Penstock's, whose type comes first */
    char start[32];
    size_t k = sprintf(start, "{\"type\":\"%s\"", type);
    return n >= k && !memcmp(p, start, k);
}

/* The characters of an event's data; NULL for another message. */
static const char *data_of(const char *p, size_t n) {
    static const char key[] = "\"data\":\"";
    static size_t at; /* as long as the topic is the same, so is the place */
    if (opt.proto == NCHAN) return (int)n == opt.payload ? p + 1 : NULL;
    if (n < 15 || memcmp(p, "{\"type\":\"event\"", 15)) return NULL;
    if (n < at + opt.payload || memcmp(p + at, key, sizeof key - 1)) {
        const char *found = memmem(p, n, key, sizeof key - 1);
        if (!found) return NULL;
        at = found - p;
    }
    return n < at + sizeof key - 1 + DIGITS ? NULL : p + at + sizeof key - 1;
}

/* ---- set-up ---- */

static size_t read_head(int fd, char *head, size_t room) { /* an answer as far as its empty line */
    size_t n = 0;
    while (n < room - 1) {
        head[n++] = read_byte(fd);
        if (n >= 4 && !memcmp(head + n - 4, "\r\n\r\n", 4)) {
            head[n] = 0;
            return n;
        }
    }
    die("the head of an answer is too long");
}

static void post(int fd, const char *path, const char *body) {
    char head[8192];
    dprintf(fd, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", path, strlen(body), body);
    read_head(fd, head, sizeof head);
    if (strncmp(head, "HTTP/1.1 20", 11)) die("POST %s: %.40s", path, head);
    const char *length = strcasestr(head, "\r\ncontent-length:");
    for (int left = length ? atoi(length + 17) : 0; left > 0; left--) read_byte(fd);
}

static void make_topics(int count) {
    char topic[64], body[128];
    if (opt.proto == NCHAN) return;
    int fd = open_tcp(opt.host, opt.port, 0, 0);
    for (int i = 0; i < count; i++) {
        topic_of(topic, i);
        sprintf(body, "{\"name\":\"%s\"}", topic);
        post(fd, "/topics", body);
    }
    close(fd);
}

static void expect_type(int fd, const char *type) { /* read messages up to one of this type */
    static char text[ANSWER_BYTES];
    for (;;) {
        char head[10];
        size_t start = 2;
        uint64_t length;
        for (size_t i = 0; i < start; i++) {
            head[i] = read_byte(fd);
            if (i == 1) take_header(head, 10, &start, &length);
        }
        take_header(head, start, &start, &length);
        if (length >= sizeof text) die("a message of %llu bytes during set-up", (unsigned long long)length);
        for (uint64_t i = 0; i < length; i++) text[i] = read_byte(fd);
        text[length] = 0;
        if ((head[0] & 15) == CLOSE) die("closed during set-up: %s", length > 2 ? text + 2 : "");
        if (is_type(text, length, "error")) die("during set-up: %s", text);
        if (is_type(text, length, type)) return;
    }
}

static void join(conn *c, int topic_number) {
    char b[1024], text[256], topic[64], path[128] = "/ws";
    topic_of(topic, topic_number);
    if (opt.proto == NCHAN) sprintf(path, "/%s/%s", c->is_pub ? "pub" : "sub", topic);
    c->fd = open_tcp(opt.host, opt.port, 0, 0);
    dprintf(c->fd, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                   "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", path);
    read_head(c->fd, b, sizeof b);
    if (strncmp(b, "HTTP/1.1 101", 12)) die("GET %s: %.40s", path, b);
    if (opt.proto == NCHAN) return;
    expect_type(c->fd, "info");
    if (c->is_pub) return;
    size_t n = sprintf(text, "{\"type\":\"subscribe\",\"topic\":\"%s\"}", topic);
    write_all(c->fd, b, put_frame(b, TEXT, text, n));
    expect_type(c->fd, "ack");
}

static void fill_blob(void) {
    char topic[64], *frame = room(MAX_PAYLOAD + 512);
    topic_of(topic, 0);
    frame_len = put_publish(frame, topic, 0);
    blob_len = frame_len * BLOB_MESSAGES;
    blob = room(blob_len + 512);
    for (uint64_t k = 0; k < BLOB_MESSAGES; k++) put_publish(blob + k * frame_len, topic, k);
    free(frame);
}

static conn *open_all(void) { /* the publisher is the first, and the last to come */
    conn *all = room((opt.subs + 1) * sizeof(conn));
    make_topics(1);
    for (int i = opt.subs; i >= 0; i--) {
        all[i].is_pub = !i;
        join(&all[i], 0);
    }
    ep = epoll_create1(0);
    for (int i = 0; i <= opt.subs; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = &all[i]};
        fcntl(all[i].fd, F_SETFL, O_NONBLOCK);
        epoll_ctl(ep, EPOLL_CTL_ADD, all[i].fd, &e);
    }
    return all;
}

/* ---- reading ---- */

static void want_out(conn *c, int wanted) {
    if (c->wants_out == wanted) return;
    struct epoll_event e = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
    c->wants_out = wanted;
}

static void on_message(conn *c, const char *text, size_t n, uint64_t stamp) {
    uint64_t number;
    if (c->is_pub) {
        if (opt.proto == NCHAN || is_type(text, n, "ack")) acked++;
        else die("a publisher got: %.*s", (int)n, text);
        return;
    }
    const char *data = data_of(text, n);
    if (!data || !take_number(data, &number)) {
        if (is_type(text, n, "error")) die("a subscriber got: %.*s", (int)n, text);
        format_errors++;
        return;
    }
    c->got++;
    delivered++;
    if (stamp) {
        if (latency_count < latency_cap) latencies[latency_count++] = stamp - number;
    } else {
        if (number != c->expect) order_errors++;
        c->expect = (number + 1) % BLOB_MESSAGES;
    }
}

static void on_frame(conn *c, int opcode, const char *text, size_t n, uint64_t stamp) {
    char pong[256];
    if (opcode == TEXT) on_message(c, text, n, stamp);
    else if (opcode == CLOSE) die("the server closed a %s: %.*s", c->is_pub ? "publisher" : "subscriber", n > 2 ? (int)n - 2 : 0, text + 2);
    else if (opcode == PING && n < 126 && sent_bytes % frame_len == 0) send(c->fd, pong, put_frame(pong, 10, text, n), MSG_DONTWAIT | MSG_NOSIGNAL);
    else if (opcode != PING) format_errors++;
}

static void keep_part(conn *c, const char *p, size_t n) {
    if (n > c->part_cap) {
        c->part_cap = n * 2;
        free(c->part);
        c->part = room(c->part_cap);
    }
    memcpy(c->part, p, n);
    c->part_len = n;
}

static void take_in(conn *c, int is_timed) {
    memcpy(rbuf, c->part, c->part_len);
    ssize_t k = recv(c->fd, rbuf + c->part_len, READ_BYTES, MSG_DONTWAIT);
    if (k < 0) {
        if (errno == EAGAIN) return;
        die("%s: %s", c->is_pub ? "publisher" : "subscriber", strerror(errno));
    }
    if (k == 0) die("the server closed a %s after %llu messages", c->is_pub ? "publisher" : "subscriber", (unsigned long long)c->got);
    uint64_t stamp = is_timed ? now_ns() : 0, length;
    size_t n = c->part_len + k, at = 0, start;
    while (take_header(rbuf + at, n - at, &start, &length) && n - at >= start + length) {
        on_frame(c, rbuf[at] & 15, rbuf + at + start, length, stamp);
        at += start + length;
    }
    if (n - at > READ_BYTES) die("a frame of more than %d bytes", READ_BYTES);
    keep_part(c, rbuf + at, n - at);
}

/* ---- the three modes ---- */

static void measure_latency(conn *all) { /* open loop, one subscriber */
    uint64_t gap = 1e9 / opt.rate, total = opt.rate * (opt.duration + opt.warm), skip = opt.rate * opt.warm;
    uint64_t next = now_ns() + 1000000, sent = 0, late = 0, deadline = 0;
    double t0 = now(), c0 = cpu_used();
    char topic[64], *frame = room(MAX_PAYLOAD + 512);
    struct epoll_event ev[EVENTS];
    latency_cap = total + 16;
    latencies = room(latency_cap * 8);
    topic_of(topic, 0);
    while (sent < total || (delivered < total && now_ns() < deadline)) {
        uint64_t t = now_ns();
        if (sent < total && t >= next) {
            if (t > next + gap) late++;
            size_t k = put_publish(frame, topic, next); /* the *scheduled* time: coordinated omission cannot hide a stall */
            if (send(all[0].fd, frame, k, MSG_NOSIGNAL) != (ssize_t)k) die("publisher blocked at this rate");
            next += gap;
            if (++sent == total) deadline = now_ns() + (uint64_t)(DRAIN_SECONDS * 1e9);
        }
        int n = epoll_wait(ep, ev, EVENTS, sent < total ? 0 : 100 /* spins: a sleep would wake late */);
        for (int i = 0; i < n; i++) take_in(ev[i].data.ptr, 1);
    }
    if (latency_count <= skip) die("only %zu of %llu messages arrived", latency_count, (unsigned long long)total);
    printf("{\"mode\": \"latency\", \"sent\": %llu, \"delivered\": %llu, \"lost\": %lld, \"format_errors\": %llu, \"late_sends\": %llu, ",
           (unsigned long long)sent, (unsigned long long)delivered, (long long)(sent - delivered), (unsigned long long)format_errors, (unsigned long long)late);
    print_percentiles(latencies + skip, latency_count - skip);
    printf(", \"load_cpu\": %.3f}\n", (cpu_used() - c0) / (now() - t0));
}

static size_t send_some(conn *c, uint64_t allow) { /* up to `allow` messages, the one begun earlier included */
    size_t begun = sent_bytes % frame_len, bytes = 0;
    if (allow) bytes = allow * frame_len - begun;
    else if (begun) bytes = frame_len - begun;
    if (bytes > blob_len - blob_off) bytes = blob_len - blob_off;
    if (bytes > SEND_BYTES) bytes = SEND_BYTES;
    if (!bytes) return 0;
    ssize_t k = send(c->fd, blob + blob_off, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (k < 0) {
        if (errno != EAGAIN) die("publisher: %s", strerror(errno));
        want_out(c, 1);
        return 0;
    }
    want_out(c, (size_t)k < bytes);
    blob_off = blob_off + k == blob_len ? 0 : blob_off + k;
    sent_bytes += k;
    return k;
}

static void measure_throughput(conn *all) { /* closed loop */
    struct { double t, cpu; uint64_t sent, delivered; } begin = {0}, end = {0};
    enum { WARMING, MEASURING, DRAINING } phase = WARMING;
    double t_begin = now() + opt.warm, t_end = t_begin + opt.duration, last_progress = now();
    struct epoll_event ev[EVENTS];
    uint64_t sent = 0;
    for (;;) {
        double t = now();
        sent = sent_bytes / frame_len;
        if (phase == WARMING && t >= t_begin) {
            phase = MEASURING;
            begin.t = t, begin.cpu = cpu_used(), begin.sent = sent, begin.delivered = delivered;
        } else if (phase == MEASURING && t >= t_end) {
            phase = DRAINING;
            end.t = t, end.cpu = cpu_used(), end.sent = sent, end.delivered = delivered;
        }
        uint64_t out = sent - delivered / opt.subs; /* messages in flight */
        int is_blocked = !send_some(&all[0], phase == DRAINING || out >= opt.window ? 0 : opt.window - out);
        if (phase == DRAINING) {
            sent = sent_bytes / frame_len;
            int is_done = sent_bytes % frame_len == 0 && delivered >= sent * opt.subs && acked >= sent;
            if (is_done || t - last_progress > DRAIN_SECONDS) break;
        }
        int n = epoll_wait(ep, ev, EVENTS, is_blocked ? 100 : 0);
        uint64_t before = delivered + acked;
        for (int i = 0; i < n; i++) {
            conn *c = ev[i].data.ptr;
            if (ev[i].events & EPOLLIN) take_in(c, 0);
            if (ev[i].events & EPOLLOUT) want_out(c, 0);
            if (ev[i].events & (EPOLLHUP | EPOLLERR)) die("a connection was lost");
        }
        if (delivered + acked != before) last_progress = now();
        else if (now() - last_progress > STALL_SECONDS) die("nothing came for %d s after %llu deliveries", STALL_SECONDS, (unsigned long long)delivered);
    }
    double dt = end.t - begin.t;
    uint64_t missing = sent * opt.subs - delivered + sent - acked; /* what was not acknowledged is not known to be taken */
    printf("{\"mode\": \"throughput\", \"window\": %llu, \"seconds\": %.3f, \"published_per_s\": %.1f, \"delivered_per_s\": %.1f, "
           "\"sent\": %llu, \"delivered\": %llu, \"lost\": %lld, \"order_errors\": %llu, \"format_errors\": %llu, \"load_cpu\": %.3f}\n",
           (unsigned long long)opt.window, dt, (end.sent - begin.sent) / dt, (end.delivered - begin.delivered) / dt, (unsigned long long)sent,
           (unsigned long long)delivered, (long long)missing, (unsigned long long)order_errors, (unsigned long long)format_errors, (end.cpu - begin.cpu) / dt);
}

static void hold_idle_topics(void) { /* each has had a message, and has a subscriber */
    char path[128], topic[64], *frame = room(MAX_PAYLOAD + 512);
    conn *all = room(opt.idle * sizeof(conn));
    make_topics(opt.idle);
    double t0 = now(), c0 = cpu_used();
    for (int i = 0; i < opt.idle; i++) join(&all[i], i);
    double dt = now() - t0, cpu = cpu_used() - c0;
    int fd = opt.proto == NCHAN ? open_tcp(opt.host, opt.port, 0, 0) : -1;
    for (int i = 0; i < opt.idle; i++) {
        topic_of(topic, i);
        sprintf(path, "/pub/%s", topic);
        if (opt.proto == NCHAN) post(fd, path, "\"once\"");
        else {
            write_all(all[i].fd, frame, put_publish(frame, topic, 0));
            expect_type(all[i].fd, "event");
        }
    }
    if (fd >= 0) close(fd);
    printf("{\"mode\": \"idle\", \"connections\": %d, \"connects_per_s\": %.1f, \"load_cpu\": %.3f}\n", opt.idle, opt.idle / dt, cpu / dt);
    fflush(stdout);
    if (opt.hold) getchar(); /* the caller looks at the server, then sends a byte or closes */
}

static void read_options(int argc, char **argv) {
    if (argc % 2 == 0) die("every option needs a value");
    for (int i = 1; i < argc; i += 2) {
        const char *o = argv[i], *v = argv[i + 1];
        if (!strcmp(o, "--proto")) {
            if (strcmp(v, "http") && strcmp(v, "nchan")) die("unknown protocol %s", v);
            opt.proto = *v == 'n' ? NCHAN : PENSTOCK;
        } else if (!strcmp(o, "--host")) opt.host = v;
        else if (!strcmp(o, "--port")) opt.port = atoi(v);
        else if (!strcmp(o, "--subs")) opt.subs = atoi(v);
        else if (!strcmp(o, "--payload")) opt.payload = atoi(v);
        else if (!strcmp(o, "--window")) opt.window = strtoull(v, 0, 10);
        else if (!strcmp(o, "--duration")) opt.duration = atof(v);
        else if (!strcmp(o, "--warm")) opt.warm = atof(v);
        else if (!strcmp(o, "--rate")) opt.rate = atof(v);
        else if (!strcmp(o, "--idle")) opt.idle = atoi(v);
        else if (!strcmp(o, "--hold")) opt.hold = atoi(v);
        else if (!strcmp(o, "--cpu")) opt.cpu = atoi(v);
        else die("unknown option %s", o);
    }
    if (opt.payload < MIN_PAYLOAD || opt.payload > MAX_PAYLOAD) die("payload must be %d to %d bytes", MIN_PAYLOAD, MAX_PAYLOAD);
    if (opt.subs < 1 || opt.subs > 9999 || opt.idle < 0 || opt.idle > 9999 || opt.window < 1) die("counts must be 1 to 9999");
    if (opt.rate > 0 && opt.subs != 1) die("latency is measured with one subscriber");
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    run_id = make_run_id();
    pin_to(opt.cpu);
    if (opt.idle) {
        hold_idle_topics();
        return 0;
    }
    fill_blob();
    conn *all = open_all();
    if (opt.rate > 0) measure_latency(all);
    else measure_throughput(all);
    return 0;
}
