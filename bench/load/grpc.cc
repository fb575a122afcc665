/*
 * Load generator for gRPC: callers that publish, subscribers that count.
 *
 * One thread and one completion queue do everything. All callers share a channel and have one call in flight each;
 * every subscriber has a connection of its own. Each subscriber has to receive every message once, those of a caller
 * in the order in which they were sent, with sequence numbers without gaps.
 *
 * Modes: calls only (--callers, --subs 0), calls and subscribers (--callers, --subs), latency to a subscriber
 * (--rate), and batches of messages over penstock.v1 (--batch).
 */
#include "common.h"

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

/* All of it in one piece: most of the time to compile it goes into headers that would be read again. */
#include "nexusd.pb.cc"
#include "nexusd.grpc.pb.cc"
#include "penstock.pb.cc"
#include "penstock.grpc.pb.cc"

namespace sidecar = nexusd::sidecar;
namespace v1 = penstock::v1;

#define MAX_PAYLOAD (1 << 20)
#define WAKE_MS 100

static struct {
    int callers = 16, subs = 0, batch = 0, payload = 128, port = 5672, cpu = -1;
    uint64_t window = 1000;
    std::string host = "127.0.0.1";
    double duration = 3, warm = 0.5, rate = 0;
} opt;

/* What every payload begins with. */
struct mark {
    uint64_t stamp, number;
    uint32_t run, caller;
};

static uint64_t published, acked, delivered, order_errors, format_errors;
static uint32_t run_id;
static bool is_ending;
static std::string topic;
static std::vector<uint64_t> latencies;
static grpc::CompletionQueue queue;

/* Something that waits in the queue for one operation at a time. */
struct waiter {
    virtual ~waiter() = default;
    virtual void on_done(bool ok) = 0;
};

static void refuse(const char *what, const grpc::Status &status) {
    die("%s: status %d, %s", what, (int)status.error_code(), status.error_message().c_str());
}

static std::shared_ptr<grpc::Channel> open_channel() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1); /* or all channels would share one connection */
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetMaxReceiveMessageSize(-1);
    auto address = "ipv4:" + opt.host + ":" + std::to_string(opt.port);
    auto channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
    if (!channel->WaitForConnected(gpr_time_add(gpr_now(GPR_CLOCK_REALTIME), gpr_time_from_seconds(SETUP_SECONDS, GPR_TIMESPAN))))
        die("connect: nothing speaks gRPC at %s", address.c_str());
    return channel;
}

static void write_mark(std::string &payload, uint64_t stamp, uint64_t number, uint32_t caller) {
    mark m = {stamp, number, run_id, caller};
    memcpy(payload.data(), &m, sizeof m);
}

/* ---- those who receive ---- */

struct receiver : waiter {
    uint64_t received = 0;
    bool is_ready = false;

    void on_message(const std::string &payload, int64_t sequence) {
        mark m;
        if (payload.size() != (size_t)opt.payload || (memcpy(&m, payload.data(), sizeof m), m.run != run_id)) {
            format_errors++;
            return;
        }
        received++;
        delivered++;
        if (opt.rate > 0) latencies.push_back(now_ns() - m.stamp);
        if (m.caller >= expected.size()) expected.resize(m.caller + 1);
        if (m.number != expected[m.caller] || (last_sequence && sequence != last_sequence + 1)) order_errors++;
        expected[m.caller] = m.number + 1;
        last_sequence = sequence;
    }

private:
    std::vector<uint64_t> expected; /* number of the next message of each caller */
    int64_t last_sequence = 0;
};

static std::vector<std::unique_ptr<receiver>> receivers;

static uint64_t slowest() {
    uint64_t least = UINT64_MAX;
    for (auto &each : receivers) least = std::min(least, each->received);
    return receivers.empty() ? acked : least;
}

static bool has_room(uint64_t more) { return published + more <= slowest() + opt.window; }

struct subscriber : receiver {
    subscriber() : stub(sidecar::SidecarService::NewStub(open_channel())) {
        sidecar::SubscribeRequest request;
        request.add_topics(topic);
        request.set_client_id("bench");
        reader = stub->AsyncSubscribe(&context, request, &queue, this);
    }

    void on_done(bool ok) override {
        if (has_ended) refuse("a subscription ended", status);
        has_ended = !ok;
        if (!ok) return reader->Finish(&status, this);
        if (event.has_message()) on_message(event.message().payload(), event.message().sequence_number());
        else if (event.has_subscription_info()) is_ready = true;
        else if (event.has_retained_message() || event.has_replay_message()) format_errors++;
        reader->Read(&event, this);
    }

private:
    std::unique_ptr<sidecar::SidecarService::Stub> stub;
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientAsyncReader<sidecar::MessageEvent>> reader;
    sidecar::MessageEvent event;
    grpc::Status status;
    bool has_ended = false;
};

/* Asks once and reads from then on. */
struct listener : receiver {
    listener() : stub(v1::Penstock::NewStub(open_channel())), begin(*this) {
        stream = stub->AsyncSubscribe(&context, &queue, &begin);
    }

    void on_done(bool ok) override {
        if (has_ended) refuse("a subscription ended", status);
        has_ended = !ok;
        if (!ok) return stream->Finish(&status, this);
        on_event();
        stream->Read(&event, this);
    }

private:
    struct beginning : waiter {
        listener &owner;
        bool has_asked = false;
        explicit beginning(listener &owner) : owner(owner) {}
        void on_done(bool ok) override {
            if (has_asked) return;
            has_asked = true;
            if (!ok) return owner.on_done(false);
            v1::SubscribeRequest request;
            request.mutable_add()->add_filters(topic);
            owner.stream->Write(request, this);
            owner.stream->Read(&owner.event, &owner);
        }
    };

    void on_event() {
        if (event.has_refused()) die("subscribe: %s, %s", event.refused().code().c_str(), event.refused().text().c_str());
        if (event.has_added()) is_ready = true;
        for (auto &run : event.delivery().runs()) {
            int64_t sequence = run.sequence();
            for (auto &payload : run.payloads()) on_message(payload, sequence++);
        }
    }

    std::unique_ptr<v1::Penstock::Stub> stub;
    grpc::ClientContext context;
    beginning begin;
    std::unique_ptr<grpc::ClientAsyncReaderWriter<v1::SubscribeRequest, v1::SubscribeEvent>> stream;
    v1::SubscribeEvent event;
    grpc::Status status;
    bool has_ended = false;
};

/* ---- those who publish ---- */

struct caller : waiter {
    caller(sidecar::SidecarService::Stub &stub, uint32_t index) : stub(stub), index(index) {
        request.set_topic(topic);
        request.mutable_payload()->resize(opt.payload, 'x');
    }

    void call(uint64_t stamp = 0) {
        write_mark(*request.mutable_payload(), stamp, number++, index);
        published++;
        context = std::make_unique<grpc::ClientContext>();
        reader = stub.AsyncPublish(context.get(), request, &queue);
        reader->Finish(&response, &status, this);
    }

    void on_done(bool) override;

private:
    sidecar::SidecarService::Stub &stub;
    uint32_t index;
    uint64_t number = 0;
    sidecar::PublishRequest request;
    sidecar::PublishResponse response;
    grpc::Status status;
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::ClientAsyncResponseReader<sidecar::PublishResponse>> reader;
};

static std::deque<caller *> resting;

void caller::on_done(bool) {
    if (!status.ok()) refuse("publish", status);
    if (!response.success() || response.message_id().empty()) die("publish: %s", response.error_message().c_str());
    acked++;
    resting.push_back(this);
}

static void call_again() {
    while (!is_ending && !resting.empty() && has_room(1)) {
        auto *next = resting.front();
        resting.pop_front();
        next->call();
    }
}

/* Writes batches while there is room, and reads what becomes of them. */
struct batcher : waiter {
    batcher() : stub(v1::Penstock::NewStub(open_channel())), acks(*this) {
        auto *entry = batch.add_messages();
        entry->set_topic(topic);
        for (int i = 0; i < opt.batch; i++) entry->add_payloads(std::string(opt.payload, 'x'));
        stream = stub->AsyncPublish(&context, &queue, this);
    }

    void on_done(bool ok) override {
        if (!ok) return; /* told by the one who reads */
        if (!has_begun) stream->Read(&acks.ack, &acks);
        has_begun = true;
        is_writing = false;
    }

    void write_more() {
        if (!has_begun || is_writing || is_ending || !has_room(opt.batch)) return;
        batch.set_batch_id(batch.batch_id() + 1);
        for (auto &payload : *batch.mutable_messages(0)->mutable_payloads()) write_mark(payload, 0, published++, 0);
        is_writing = true;
        stream->Write(batch, this);
    }

private:
    struct acknowledgements : waiter {
        batcher &owner;
        v1::PublishAck ack;
        uint64_t last_id = 0;
        grpc::Status status;
        bool has_ended = false;
        explicit acknowledgements(batcher &owner) : owner(owner) {}
        void on_done(bool ok) override {
            if (has_ended) refuse("publishing ended", status);
            has_ended = !ok;
            if (!ok) return owner.stream->Finish(&status, this);
            if (ack.refusals_size()) die("publish: %s, %s", ack.refusals(0).code().c_str(), ack.refusals(0).text().c_str());
            if (ack.batch_id() != ++last_id) order_errors++;
            acked += ack.accepted();
            owner.stream->Read(&ack, this);
        }
    };

    std::unique_ptr<v1::Penstock::Stub> stub;
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientAsyncReaderWriter<v1::PublishBatch, v1::PublishAck>> stream;
    v1::PublishBatch batch;
    acknowledgements acks;
    bool has_begun = false, is_writing = false;
};

/* ---- the modes ---- */

static void take_one_in(int patience_ms) {
    void *tag;
    bool ok;
    auto until = gpr_inf_past(GPR_CLOCK_REALTIME); /* now would be rounded up to a millisecond */
    if (patience_ms) until = gpr_time_add(gpr_now(GPR_CLOCK_REALTIME), gpr_time_from_millis(patience_ms, GPR_TIMESPAN));
    if (queue.AsyncNext(&tag, &ok, until) == grpc::CompletionQueue::GOT_EVENT) static_cast<waiter *>(tag)->on_done(ok);
}

template <class kind> static void open_receivers() {
    for (int i = 0; i < opt.subs; i++) receivers.push_back(std::make_unique<kind>());
    double deadline = now() + SETUP_SECONDS;
    for (auto &each : receivers)
        while (!each->is_ready) {
            if (now() > deadline) die("no answer during set-up for %d s", SETUP_SECONDS);
            take_one_in(WAKE_MS);
        }
}

static int64_t count_lost() { return (int64_t)(published * opt.subs - delivered) + (int64_t)(published - acked); }

static void print_counts(const char *mode) {
    printf("{\"mode\": \"%s\", \"sent\": %llu, \"delivered\": %llu, \"lost\": %lld, \"order_errors\": %llu, \"format_errors\": %llu, ", mode,
           (unsigned long long)published, (unsigned long long)delivered, (long long)count_lost(), (unsigned long long)order_errors,
           (unsigned long long)format_errors);
}

template <class action> static void measure_rate(action publish_more) { /* closed loop */
    struct moment { double t, cpu; uint64_t acked, delivered; } begin = {}, end = {};
    double t_begin = now() + opt.warm, t_end = t_begin + opt.duration, last_progress = now();
    for (;;) {
        double t = now();
        if (!begin.t && t >= t_begin) begin = {t, cpu_used(), acked, delivered};
        else if (!is_ending && t >= t_end) {
            is_ending = true;
            end = {t, cpu_used(), acked, delivered};
        }
        if (is_ending && (!count_lost() || t - last_progress > DRAIN_SECONDS)) break;
        if (t - last_progress > STALL_SECONDS) die("nothing came for %d s after %llu messages", STALL_SECONDS, (unsigned long long)published);
        publish_more();
        uint64_t before = acked + delivered;
        take_one_in(WAKE_MS);
        if (acked + delivered != before) last_progress = t;
    }
    double dt = end.t - begin.t;
    print_counts(opt.batch ? "batches" : "calls");
    printf("\"seconds\": %.3f, \"window\": %llu, \"acked_per_s\": %.1f, \"delivered_per_s\": %.1f, \"load_cpu\": %.3f}\n", dt,
           (unsigned long long)opt.window, (end.acked - begin.acked) / dt, (end.delivered - begin.delivered) / dt, (end.cpu - begin.cpu) / dt);
}

static void measure_latency(sidecar::SidecarService::Stub &stub) { /* open loop */
    std::vector<std::unique_ptr<caller>> callers;
    uint64_t gap = 1e9 / opt.rate, total = opt.rate * (opt.duration + opt.warm), skip = opt.rate * opt.warm, late = 0, deadline = 0;
    double t0 = now(), c0 = cpu_used();
    latencies.reserve(total);
    for (uint64_t next = now_ns() + 10000000; published < total || (count_lost() && now_ns() < deadline);) {
        uint64_t t = now_ns();
        if (published < total && t >= next) {
            if (t > next + gap) late++;
            if (resting.empty()) {
                callers.push_back(std::make_unique<caller>(stub, callers.size()));
                resting.push_back(callers.back().get());
            }
            resting.front()->call(next); /* the *scheduled* time: coordinated omission cannot hide a stall */
            resting.pop_front();
            next += gap;
            deadline = now_ns() + (uint64_t)(DRAIN_SECONDS * 1e9);
        }
        take_one_in(0); /* spins: a sleep would wake late */
    }
    if (latencies.size() <= skip) die("only %zu of %llu messages arrived", latencies.size(), (unsigned long long)total);
    print_counts("latency");
    printf("\"late_sends\": %llu, ", (unsigned long long)late);
    print_percentiles(latencies.data() + skip, latencies.size() - skip);
    printf(", \"load_cpu\": %.3f}\n", (cpu_used() - c0) / (now() - t0));
}

static void measure_batches() {
    open_receivers<listener>();
    batcher publisher;
    measure_rate([&] { publisher.write_more(); });
}

static void measure_calls() {
    open_receivers<subscriber>();
    auto stub = sidecar::SidecarService::NewStub(open_channel());
    if (opt.rate > 0) return measure_latency(*stub);
    std::vector<std::unique_ptr<caller>> callers;
    for (int i = 0; i < opt.callers; i++) {
        callers.push_back(std::make_unique<caller>(*stub, i));
        resting.push_back(callers.back().get());
    }
    measure_rate(call_again);
}

static void read_options(int argc, char **argv) {
    if (argc % 2 == 0) die("every option needs a value");
    std::map<std::string, int *> counts = {{"--port", &opt.port}, {"--callers", &opt.callers}, {"--subs", &opt.subs},
                                           {"--batch", &opt.batch}, {"--payload", &opt.payload}, {"--cpu", &opt.cpu}};
    std::map<std::string, double *> measures = {{"--duration", &opt.duration}, {"--warm", &opt.warm}, {"--rate", &opt.rate}};
    for (int i = 1; i < argc; i += 2) {
        std::string o = argv[i], v = argv[i + 1];
        if (counts.count(o)) *counts[o] = atoi(v.c_str());
        else if (measures.count(o)) *measures[o] = atof(v.c_str());
        else if (o == "--window") opt.window = atoll(v.c_str());
        else if (o == "--host") opt.host = v;
        else if (o != "--proto") die("unknown option %s", o.c_str());
        else if (v != "grpc" && v != "nexusd") die("unknown protocol %s", v.c_str());
        else if (v == "nexusd" && opt.batch) die("batches need penstock.v1");
    }
    if (opt.payload < (int)sizeof(mark) || opt.payload > MAX_PAYLOAD) die("payload must be %zu to %d bytes", sizeof(mark), MAX_PAYLOAD);
    if (opt.callers < 1 || opt.subs < 0 || opt.subs > 9999 || opt.batch < 0 || opt.window < 1) die("counts are out of range");
    if ((opt.rate > 0 || opt.batch) && !opt.subs) die("somebody has to receive: --subs");
    if ((uint64_t)opt.batch > opt.window) die("a batch does not fit into the window");
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    run_id = make_run_id();
    topic = "bench/sidecar/" + std::to_string(run_id);
    pin_to(opt.cpu);
    close(open_tcp(opt.host.c_str(), opt.port, 0, 0)); /* gRPC would try again and again where nobody listens */
    if (opt.batch) measure_batches();
    else measure_calls();
    fflush(stdout);
    _exit(0); /* with streams open, as a client that is gone */
}
