/*
 * Load generator for message brokers, single-threaded.
 *
 * It must never be the bottleneck, so publishers send slices of a pre-encoded blob of many packets, and
 * subscribers recv() into one large buffer and count packets by their known, fixed length. Flow control
 * is a window over *delivered* messages, so a broker is never pushed into dropping. Without subscribers
 * (--subs 0, QoS 1 only) acknowledgements are counted.
 *
 * Speaks mqtt (3.1.1, QoS 0 and 1), nats and redis (PUBLISH/SUBSCRIBE).
 * Modes: throughput (default), latency (--rate), idle connections (--idle).
 */
#include "common.h"

enum { MQTT, NATS, REDIS };

#define MIN_PAYLOAD 8            /* index and publisher, or a time stamp */
#define MAX_PAYLOAD (1 << 16)
#define HEADER_ROOM 512          /* topic and framing around a payload, at most */
#define CONNECT_SECONDS 60       /* for all connections of idle mode */
#define CONNECTING 64            /* handshakes under way at once in idle mode */

static struct {
    int proto, qos, pubs, subs, topics, payload, port, cpu, idle, hold, stay, pairs;
    const char *host;
    double duration, warm, rate;
    uint64_t window; /* 0: as deep as 8 MiB of deliveries, at most 10,000 */
} opt = {.pubs = 1, .subs = 1, .topics = 1, .payload = 64, .port = 1883, .cpu = -1, .host = "127.0.0.1", .duration = 3, .warm = 0.5};

typedef struct {
    int fd, is_pub, idx, wants_out;
    /* publisher */
    char *blob;          /* pre-encoded packets, sent over and over */
    size_t blob_len, off;
    uint64_t sent_bytes, acked;
    char ack[4];         /* the start of a PUBACK that a recv() cut */
    size_t ack_len;
    /* subscriber */
    uint64_t got, rx_bytes;
    char *part;          /* the start of a packet that a recv() cut */
    size_t part_len;
    char *out;           /* PUBACKs that could not be sent yet */
    size_t out_len, out_cap;
    uint32_t *expect;    /* next index of each publisher */
    int state;           /* idle mode */
} conn;

static size_t plen;       /* length of a publish */
static size_t dlen, dpay; /* length of a delivery, offset of the payload in it */
static uint32_t blob_msgs;
static uint64_t delivered, acked, order_errors, format_errors;
static uint64_t copies;   /* how often each message is delivered */
static uint64_t *latencies;
static size_t latency_count, latency_cap;
static uint32_t run_id;   /* keeps topics and client names of two runs apart */
static char rbuf[READ_BYTES];
static int ep;

/* ---- topics and packets ---- */

/* NATS and Redis separate levels with dots and have their own wildcard for "everything below". */
static void localise(char *s) {
    if (opt.proto == MQTT) return;
    for (; *s; s++) {
        if (*s == '/') *s = '.';
        if (*s == '#') *s = opt.proto == NATS ? '>' : '*';
    }
}

static void topic_of(char *out, int number) {
    sprintf(out, "bench/%08x/p%04d/value", run_id, number);
    localise(out);
}

static int is_wildcard(void) { return !opt.pairs && (opt.pubs > 1 || opt.topics > 1); }

static void filter_of(char *out, int subscriber) {
    if (!is_wildcard()) {
        topic_of(out, opt.pairs ? subscriber : 0);
        return;
    }
    sprintf(out, "bench/%08x/#", run_id);
    localise(out);
}

static size_t put_len(char *p, size_t n) {
    size_t i = 0;
    do {
        unsigned char b = n % 128;
        n /= 128;
        if (n) b |= 128;
        p[i++] = b;
    } while (n);
    return i;
}

static size_t put_text(char *p, const char *text) {
    size_t n = strlen(text);
    p[0] = n >> 8;
    p[1] = n & 255;
    memcpy(p + 2, text, n);
    return n + 2;
}

static size_t mqtt_connect(char *p, const char *id, int stays) {
    size_t i = 1 + put_len(p + 1, 10 + 2 + strlen(id));
    p[0] = 0x10;
    memcpy(p + i, "\0\4MQTT\4\2\x0e\x10", 10); /* clean session, keep alive one hour */
    if (stays) p[i + 7] = 0;
    i += 10;
    return i + put_text(p + i, id);
}

static size_t mqtt_subscribe(char *p, const char *filter, int qos) {
    size_t i = 1 + put_len(p + 1, 2 + 2 + strlen(filter) + 1);
    p[0] = (char)0x82;
    p[i++] = 0;
    p[i++] = 1;
    i += put_text(p + i, filter);
    p[i++] = qos;
    return i;
}

static size_t mqtt_publish(char *p, const char *topic, const char *pay, uint16_t pid) {
    size_t i = 1 + put_len(p + 1, 2 + strlen(topic) + (opt.qos ? 2 : 0) + opt.payload);
    p[0] = 0x30 | (opt.qos << 1);
    i += put_text(p + i, topic);
    if (opt.qos) {
        p[i++] = pid >> 8;
        p[i++] = pid & 255;
    }
    memcpy(p + i, pay, opt.payload);
    return i + opt.payload;
}

static size_t put_publish(char *p, const char *topic, const char *pay, uint16_t pid) {
    if (opt.proto == MQTT) return mqtt_publish(p, topic, pay, pid);
    size_t i;
    if (opt.proto == NATS) i = sprintf(p, "PUB %s %d\r\n", topic, opt.payload);
    else i = sprintf(p, "*3\r\n$7\r\nPUBLISH\r\n$%zu\r\n%s\r\n$%d\r\n", strlen(topic), topic, opt.payload);
    memcpy(p + i, pay, opt.payload);
    memcpy(p + i + opt.payload, "\r\n", 2);
    return i + opt.payload + 2;
}

/* Every topic of a run has the same length, so every delivery has too. */
static void plan_lengths(void) {
    char topic[128], filter[128], head[HEADER_ROOM];
    char *packet = room(opt.payload + HEADER_ROOM), *pay = room(opt.payload);
    topic_of(topic, 0);
    filter_of(filter, 0);
    plen = put_publish(packet, topic, pay, 1);
    if (opt.proto == MQTT) {
        dlen = plen;
        dpay = dlen - opt.payload;
    } else {
        if (opt.proto == NATS) dpay = sprintf(head, "MSG %s 1 %d\r\n", topic, opt.payload);
        else if (is_wildcard())
            dpay = sprintf(head, "*4\r\n$8\r\npmessage\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n$%d\r\n", strlen(filter), filter, strlen(topic), topic, opt.payload);
        else dpay = sprintf(head, "*3\r\n$7\r\nmessage\r\n$%zu\r\n%s\r\n$%d\r\n", strlen(topic), topic, opt.payload);
        dlen = dpay + opt.payload + 2;
    }
    free(packet);
    free(pay);
    if (!opt.window) {
        opt.window = (8u << 20) / dlen / (opt.subs ? opt.subs : 1);
        if (opt.window > 10000) opt.window = 10000;
        if (opt.window < 64) opt.window = 64;
    }
    copies = opt.pairs ? 1 : opt.subs;
}

/* ---- set-up ---- */

static void expect_text(int fd, const char *end) {
    char b[8192];
    size_t n = 0, want = strlen(end);
    while (n < sizeof b) {
        b[n++] = read_byte(fd);
        if (n >= want && !memcmp(b + n - want, end, want)) return;
    }
    die("unexpected answer during set-up");
}

static void expect_packet(int fd, int want) { /* one MQTT control packet; its second or third byte is the answer */
    unsigned char b[8] = {0}, byte;
    int type = read_byte(fd) >> 4;
    size_t len = 0, shift = 0;
    do {
        byte = read_byte(fd);
        len |= (size_t)(byte & 127) << shift;
        shift += 7;
    } while (byte & 128 && shift < 28);
    for (size_t i = 0; i < len; i++) {
        byte = read_byte(fd);
        if (i < sizeof b) b[i] = byte;
    }
    if (type != want) die("expected packet type %d, got %d", want, type);
    if (type == 2 && b[1]) die("CONNACK refused: %d", b[1]);
    if (type == 9 && b[2] > 2) die("SUBACK refused: %d", b[2]);
}

static int open_one(int i, int type) { /* one source address has too few ports for idle mode: spread over 127.0.0.2 and its neighbours */
    return open_tcp(opt.host, opt.port, type, opt.idle ? 0x7f000002u + (i % 8) : 0);
}

static void handshake(conn *c, const char *filter) {
    char b[1024], id[64];
    if (opt.proto == MQTT) {
        sprintf(id, "b%08x%c%d", run_id, c->is_pub ? 'p' : 's', c->idx);
        write_all(c->fd, b, mqtt_connect(b, id, opt.stay && !c->is_pub));
        expect_packet(c->fd, 2);
        if (c->is_pub) return;
        write_all(c->fd, b, mqtt_subscribe(b, filter, opt.qos));
        expect_packet(c->fd, 9);
    } else if (opt.proto == NATS) {
        expect_text(c->fd, "\r\n");
        write_all(c->fd, b, sprintf(b, "CONNECT {\"verbose\":false,\"pedantic\":false}\r\nPING\r\n"));
        expect_text(c->fd, "PONG\r\n");
        if (c->is_pub) return;
        write_all(c->fd, b, sprintf(b, "SUB %s 1\r\nPING\r\n", filter));
        expect_text(c->fd, "PONG\r\n");
    } else if (!c->is_pub) {
        const char *verb = is_wildcard() ? "PSUBSCRIBE" : "SUBSCRIBE";
        write_all(c->fd, b, sprintf(b, "*2\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n", strlen(verb), verb, strlen(filter), filter));
        expect_text(c->fd, ":1\r\n");
    }
}

/* Each message carries its place in the blob and its publisher, so that order can be checked. */
static void fill_blob(conn *c) {
    char topic[128], *pay = room(opt.payload);
    uint16_t publisher = c->idx;
    for (int i = 0; i < opt.payload; i++) pay[i] = 'a' + i % 26;
    memcpy(pay + 4, &publisher, 2);
    c->blob_len = (size_t)blob_msgs * plen;
    c->blob = room(c->blob_len);
    for (uint32_t k = 0; k < blob_msgs; k++) {
        memcpy(pay, &k, 4);
        topic_of(topic, opt.topics > 1 ? (int)(k % opt.topics) : c->idx);
        put_publish(c->blob + (size_t)k * plen, topic, pay, k % 65535 + 1);
    }
    free(pay);
}

static conn *open_all(void) { /* publishers first, then subscribers; subscribed before anything is sent */
    int total = opt.pubs + opt.subs;
    conn *all = room(total * sizeof(conn));
    char filter[128];
    blob_msgs = (opt.pubs > 1 ? 65536 : 1 << 20) / plen;
    if (blob_msgs < 16) blob_msgs = 16;
    if (opt.qos) blob_msgs = opt.pubs > 1 ? 4095 : 65535; /* one runs through all packet ids, many need memory */
    for (int i = total - 1; i >= 0; i--) {
        conn *c = &all[i];
        c->is_pub = i < opt.pubs;
        c->idx = c->is_pub ? i : i - opt.pubs;
        c->fd = open_one(i, 0);
        filter_of(filter, c->idx);
        handshake(c, filter);
        if (c->is_pub) fill_blob(c);
        else {
            c->part = room(dlen);
            c->expect = room(opt.pubs * sizeof(uint32_t));
        }
    }
    ep = epoll_create1(0);
    for (int i = 0; i < total; i++) {
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

static void queue_puback(conn *c, const char *packet_id) {
    if (c->out_len + 4 > c->out_cap) {
        c->out_cap = c->out_cap ? c->out_cap * 2 : 65536;
        c->out = realloc(c->out, c->out_cap);
        if (!c->out) die("out of memory");
    }
    char *o = c->out + c->out_len;
    o[0] = 0x40;
    o[1] = 2;
    o[2] = packet_id[0];
    o[3] = packet_id[1];
    c->out_len += 4;
}

static void on_delivery(conn *c, const char *packet, uint64_t stamp) {
    c->got++;
    if (opt.proto == MQTT && (packet[0] & 0xf0) != 0x30) format_errors++;
    if (stamp) {
        uint64_t sent_at;
        memcpy(&sent_at, packet + dpay, 8);
        if (latency_count < latency_cap) latencies[latency_count++] = stamp - sent_at;
    } else {
        uint32_t k;
        uint16_t publisher;
        memcpy(&k, packet + dpay, 4);
        memcpy(&publisher, packet + dpay + 4, 2);
        if (publisher >= opt.pubs) format_errors++;
        else {
            if (k != c->expect[publisher]) order_errors++;
            c->expect[publisher] = k + 1 == blob_msgs ? 0 : k + 1;
        }
    }
    if (opt.qos) queue_puback(c, packet + dpay - 2);
}

static void split(conn *c, const char *p, size_t n, uint64_t stamp) {
    while (n) {
        if (opt.proto == NATS && !c->part_len && n >= 6 && !memcmp(p, "PING\r\n", 6)) { /* between messages; assumed unsplit */
            send(c->fd, "PONG\r\n", 6, MSG_DONTWAIT | MSG_NOSIGNAL);
            p += 6;
            n -= 6;
        } else if (!c->part_len && n >= dlen) {
            on_delivery(c, p, stamp);
            p += dlen;
            n -= dlen;
        } else {
            size_t take = dlen - c->part_len < n ? dlen - c->part_len : n;
            memcpy(c->part + c->part_len, p, take);
            c->part_len += take;
            p += take;
            n -= take;
            if (c->part_len < dlen) return;
            c->part_len = 0;
            on_delivery(c, c->part, stamp);
        }
    }
}

static void sub_read(conn *c, int timed) {
    for (int turn = 0; turn < 2; turn++) {
        ssize_t k = recv(c->fd, rbuf, READ_BYTES, MSG_DONTWAIT);
        if (k < 0) {
            if (errno == EAGAIN) break;
            die("subscriber: %s", strerror(errno));
        }
        if (k == 0) die("broker closed a subscriber after %llu messages", (unsigned long long)c->got);
        uint64_t before = c->got;
        split(c, rbuf, k, timed ? now_ns() : 0);
        delivered += c->got - before;
        if (k < READ_BYTES / 2) break;
    }
    if (c->out_len) {
        ssize_t k = send(c->fd, c->out, c->out_len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (k > 0) {
            memmove(c->out, c->out + k, c->out_len - k);
            c->out_len -= k;
        }
        want_out(c, c->out_len > 0);
    }
}

static void on_ack(conn *c) { /* acknowledgements come in the order of the publishes: MQTT-4.6.0-2 */
    uint16_t expected = c->acked % blob_msgs % 65535 + 1;
    if (c->ack[0] != 0x40 || c->ack[1] != 2) die("a publisher got something else than a PUBACK");
    if ((unsigned char)c->ack[2] << 8 != (expected & 0xff00) || (unsigned char)c->ack[3] != (expected & 255)) order_errors++;
    c->ack_len = 0;
    c->acked++;
    acked++;
}

static void pub_read(conn *c) {
    ssize_t k = recv(c->fd, rbuf, READ_BYTES, MSG_DONTWAIT);
    if (k == 0) die("broker closed a publisher");
    if (k < 0) return;
    if (opt.qos) {
        for (ssize_t i = 0; i < k; i++) {
            c->ack[c->ack_len++] = rbuf[i];
            if (c->ack_len == sizeof c->ack) on_ack(c);
        }
    } else if (opt.proto == NATS && memmem(rbuf, k, "PING\r\n", 6) && c->sent_bytes % plen == 0) {
        send(c->fd, "PONG\r\n", 6, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
}

/* ---- the three modes ---- */

static void measure_latency(conn *all) { /* open loop, one publisher and one subscriber */
    uint64_t gap = 1e9 / opt.rate, total = opt.rate * (opt.duration + opt.warm), skip = opt.rate * opt.warm;
    uint64_t next = now_ns() + 1000000, sent = 0, late = 0, deadline = 0;
    double t0 = now(), c0 = cpu_used();
    char topic[128], *packet = room(opt.payload + HEADER_ROOM), *pay = room(opt.payload);
    struct epoll_event ev[EVENTS];
    latency_cap = total + 16;
    latencies = room(latency_cap * 8);
    topic_of(topic, 0);
    while (sent < total || (delivered < total && now_ns() < deadline)) {
        uint64_t t = now_ns();
        if (sent < total && t >= next) {
            if (t > next + gap) late++;
            memcpy(pay, &next, 8); /* the *scheduled* time: coordinated omission cannot hide a stall */
            size_t k = put_publish(packet, topic, pay, sent % 65535 + 1);
            if (send(all[0].fd, packet, k, MSG_NOSIGNAL) != (ssize_t)k) die("publisher blocked at this rate");
            next += gap;
            if (++sent == total) deadline = now_ns() + (uint64_t)(DRAIN_SECONDS * 1e9);
        }
        int n = epoll_wait(ep, ev, EVENTS, sent < total ? 0 : 100 /* spins: a sleep would wake late */);
        for (int i = 0; i < n; i++) {
            conn *c = ev[i].data.ptr;
            if (c->is_pub) pub_read(c);
            else sub_read(c, 1);
        }
    }
    if (latency_count <= skip) die("only %zu of %llu messages arrived", latency_count, (unsigned long long)total);
    printf("{\"mode\": \"latency\", \"sent\": %llu, \"delivered\": %llu, \"lost\": %lld, \"format_errors\": %llu, \"late_sends\": %llu, ",
           (unsigned long long)sent, (unsigned long long)delivered, (long long)(sent - delivered), (unsigned long long)format_errors, (unsigned long long)late);
    print_percentiles(latencies + skip, latency_count - skip);
    printf(", \"load_cpu\": %.3f}\n", (cpu_used() - c0) / (now() - t0));
}

static uint64_t sent_by(conn *pubs) {
    uint64_t sent = 0;
    for (int i = 0; i < opt.pubs; i++) sent += pubs[i].sent_bytes / plen;
    return sent;
}

static uint64_t allowance(conn *c, uint64_t out) { /* whole messages this publisher may start now */
    if (opt.qos) { /* a window of unacknowledged ones, and deliveries may lag by ten windows */
        uint64_t flying = (c->sent_bytes + plen - 1) / plen - c->acked, share = opt.window / opt.pubs ? opt.window / opt.pubs : 1;
        return flying < share && out < 10 * opt.window + 1000 ? share - flying : 0;
    }
    uint64_t share = (opt.window + opt.pubs - 1) / opt.pubs, allow = out < opt.window ? opt.window - out : 0;
    return allow < share ? allow : share;
}

static size_t send_some(conn *c, uint64_t allow) { /* up to `allow` messages, the one begun earlier included */
    size_t begun = c->sent_bytes % plen, bytes = 0;
    if (allow) bytes = allow * plen - begun;
    else if (begun) bytes = plen - begun;
    if (bytes > c->blob_len - c->off) bytes = c->blob_len - c->off;
    if (bytes > SEND_BYTES) bytes = SEND_BYTES;
    if (!bytes) return 0;
    ssize_t k = send(c->fd, c->blob + c->off, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (k < 0) {
        if (errno != EAGAIN) die("publisher: %s", strerror(errno));
        want_out(c, 1);
        return 0;
    }
    want_out(c, (size_t)k < bytes);
    c->off = c->off + k == c->blob_len ? 0 : c->off + k;
    c->sent_bytes += k;
    return k;
}

static void measure_throughput(conn *all) { /* closed loop */
    struct { double t, cpu; uint64_t sent, delivered, acked; } begin = {0}, end = {0};
    enum { WARMING, MEASURING, DRAINING } phase = WARMING;
    double t_begin = now() + opt.warm, t_end = t_begin + opt.duration, last_progress = now();
    struct epoll_event ev[EVENTS];
    uint64_t sent = 0;
    for (unsigned turn = 0;; turn++) {
        double t = now();
        sent = sent_by(all);
        if (phase == WARMING && t >= t_begin) {
            phase = MEASURING;
            begin.t = t, begin.cpu = cpu_used(), begin.sent = sent, begin.delivered = delivered, begin.acked = acked;
        } else if (phase == MEASURING && t >= t_end) {
            phase = DRAINING;
            end.t = t, end.cpu = cpu_used(), end.sent = sent, end.delivered = delivered, end.acked = acked;
        }
        int blocked = 1;
        uint64_t out = sent - (copies ? delivered / copies : acked); /* messages in flight */
        for (int j = 0; j < opt.pubs; j++) {
            conn *c = &all[(turn + j) % opt.pubs];
            size_t k = send_some(c, phase == DRAINING ? 0 : allowance(c, out));
            out += k / plen;
            if (k) blocked = 0;
        }
        if (phase == DRAINING) {
            sent = sent_by(all);
            if ((delivered >= sent * copies && acked >= sent * opt.qos) || t - last_progress > DRAIN_SECONDS) break;
        }
        int n = epoll_wait(ep, ev, EVENTS, blocked ? 100 : 0);
        uint64_t before = delivered + acked;
        for (int i = 0; i < n; i++) {
            conn *c = ev[i].data.ptr;
            if (!c->is_pub) sub_read(c, 0);
            else {
                if (ev[i].events & EPOLLIN) pub_read(c);
                if (ev[i].events & EPOLLOUT) want_out(c, 0);
                if (ev[i].events & (EPOLLHUP | EPOLLERR)) die("publisher connection lost");
            }
        }
        if (delivered + acked != before) last_progress = now();
        else if (now() - last_progress > STALL_SECONDS) die("no delivery for %d s after %llu", STALL_SECONDS, (unsigned long long)delivered);
    }
    double dt = end.t - begin.t;
    uint64_t missing = sent * copies - delivered;
    if (opt.qos) missing += sent - acked; /* what was not acknowledged is not known to be taken */
    printf("{\"mode\": \"throughput\", \"window\": %llu, \"seconds\": %.3f, \"published_per_s\": %.1f, \"delivered_per_s\": %.1f, "
           "\"acked_per_s\": %.1f, \"sent\": %llu, \"delivered\": %llu, \"lost\": %lld, \"order_errors\": %llu, \"format_errors\": %llu, \"load_cpu\": %.3f}\n",
           (unsigned long long)opt.window, dt, (end.sent - begin.sent) / dt, (end.delivered - begin.delivered) / dt, (end.acked - begin.acked) / dt, (unsigned long long)sent,
           (unsigned long long)delivered, (long long)missing, (unsigned long long)order_errors,
           (unsigned long long)format_errors, (end.cpu - begin.cpu) / dt);
}

static void begin_connecting(conn *c, int i) {
    c->idx = i;
    c->fd = open_one(i, SOCK_NONBLOCK);
    struct epoll_event e = {.events = EPOLLOUT, .data.ptr = c};
    epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &e);
}

static int go_on_connecting(conn *c) { /* true when connected and subscribed */
    enum { CONNECT, CONNACK, SUBACK };
    char b[1024], text[64];
    if (c->state == CONNECT) {
        int err = 0;
        socklen_t len = sizeof err;
        getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &len);
        if (err) die("connection %d: %s", c->idx, strerror(err));
        sprintf(text, "i%08x%d", run_id, c->idx);
        write_all(c->fd, b, mqtt_connect(b, text, 0));
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
        c->state = CONNACK;
        return 0;
    }
    ssize_t k = read(c->fd, b, sizeof b);
    if (k <= 0) die("connection %d was closed while it connected", c->idx);
    c->rx_bytes += k;
    if (c->state == CONNACK && c->rx_bytes >= 4) {
        sprintf(text, "idle/%08x/%d", run_id, c->idx);
        write_all(c->fd, b, mqtt_subscribe(b, text, 0));
        c->state = SUBACK;
    } else if (c->state == SUBACK && c->rx_bytes >= 9) {
        epoll_ctl(ep, EPOLL_CTL_DEL, c->fd, NULL);
        return 1;
    }
    return 0;
}

static void hold_idle_connections(void) {
    conn *all = room(opt.idle * sizeof(conn));
    struct epoll_event ev[EVENTS];
    int next = 0, connecting = 0, done = 0;
    ep = epoll_create1(0);
    double t0 = now(), c0 = cpu_used();
    while (done < opt.idle) {
        for (; connecting < CONNECTING && next < opt.idle; connecting++, next++) begin_connecting(&all[next], next);
        int n = epoll_wait(ep, ev, EVENTS, 1000);
        if (now() - t0 > CONNECT_SECONDS) die("only %d of %d connections in %d s", done, opt.idle, CONNECT_SECONDS);
        for (int i = 0; i < n; i++)
            if (go_on_connecting(ev[i].data.ptr)) {
                connecting--;
                done++;
            }
    }
    double dt = now() - t0;
    printf("{\"mode\": \"idle\", \"connections\": %d, \"connects_per_s\": %.1f, \"load_cpu\": %.3f}\n", opt.idle, opt.idle / dt, (cpu_used() - c0) / dt);
    fflush(stdout);
    if (opt.hold) getchar(); /* the caller looks at the broker, then sends a byte or closes */
}

static void read_options(int argc, char **argv) {
    if (argc % 2 == 0) die("every option needs a value");
    for (int i = 1; i < argc; i += 2) {
        const char *o = argv[i], *v = argv[i + 1];
        if (!strcmp(o, "--proto")) {
            if (strcmp(v, "mqtt") && strcmp(v, "nats") && strcmp(v, "redis")) die("unknown protocol %s", v);
            opt.proto = *v == 'n' ? NATS : *v == 'r' ? REDIS : MQTT;
        } else if (!strcmp(o, "--host")) opt.host = v;
        else if (!strcmp(o, "--port")) opt.port = atoi(v);
        else if (!strcmp(o, "--pubs")) opt.pubs = atoi(v);
        else if (!strcmp(o, "--subs")) opt.subs = atoi(v);
        else if (!strcmp(o, "--topics")) opt.topics = atoi(v);
        else if (!strcmp(o, "--payload")) opt.payload = atoi(v);
        else if (!strcmp(o, "--qos")) opt.qos = atoi(v);
        else if (!strcmp(o, "--window")) opt.window = strtoull(v, 0, 10);
        else if (!strcmp(o, "--duration")) opt.duration = atof(v);
        else if (!strcmp(o, "--warm")) opt.warm = atof(v);
        else if (!strcmp(o, "--rate")) opt.rate = atof(v);
        else if (!strcmp(o, "--idle")) opt.idle = atoi(v);
        else if (!strcmp(o, "--hold")) opt.hold = atoi(v);
        else if (!strcmp(o, "--pairs")) opt.pairs = atoi(v);
        else if (!strcmp(o, "--stay")) opt.stay = atoi(v);
        else if (!strcmp(o, "--cpu")) opt.cpu = atoi(v);
        else die("unknown option %s", o);
    }
    if (opt.pairs) opt.subs = opt.pubs; /* each subscriber gets what one publisher sends */
    if (opt.payload < MIN_PAYLOAD || opt.payload > MAX_PAYLOAD) die("payload must be %d to %d bytes", MIN_PAYLOAD, MAX_PAYLOAD);
    if (opt.pubs < 1 || opt.subs < !opt.qos || opt.topics < 1 || opt.pubs > 9999 || opt.topics > 9999) die("counts must be 1 to 9999; without subscribers there have to be acknowledgements");
    if (opt.rate > 0 && (opt.pubs != 1 || opt.subs != 1)) die("latency is measured with one publisher and one subscriber");
    if (opt.qos && opt.proto != MQTT) die("QoS 1 is MQTT only");
    if (opt.idle && opt.proto != MQTT) die("idle connections are MQTT only");
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    run_id = make_run_id();
    pin_to(opt.cpu);
    if (opt.idle) {
        hold_idle_connections();
        return 0;
    }
    plan_lengths();
    conn *all = open_all();
    if (opt.rate > 0) measure_latency(all);
    else measure_throughput(all);
    return 0;
}
