/*
 * Baseline daemon on grpc++ that serves nexusd.sidecar.
 *
 * NexusD's own daemon does not compile, so this implements what its documents promise of one node: a queue of 10,000
 * messages per subscriber that drops its oldest, a ring of five messages per topic, retained values, time to live,
 * sequence numbers, ids. It has one thread and no locks, and shares one event among all subscribers, so it is faster
 * than that daemon would be. Not implemented: pausing, the mesh, heartbeats, authentication.
 *
 * As usual with grpc++, a stream has one message on its way at a time, and each is a DATA frame of its own.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <deque>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include <grpcpp/grpcpp.h>

/* All of it in one piece: most of the time to compile it goes into headers that would be read again. */
#include "nexusd.pb.cc"
#include "nexusd.grpc.pb.cc"

using namespace nexusd::sidecar;

#define RING_MESSAGES 5
#define QUEUE_MESSAGES 10000

static int64_t now_ms(clockid_t clock) {
    timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000ll + t.tv_nsec / 1000000;
}

static std::string make_uuid() { /* version 4 */
    static std::mt19937_64 random(std::random_device{}());
    unsigned long long a = random(), b = random();
    char text[37];
    snprintf(text, sizeof text, "%08llx-%04llx-4%03llx-%04llx-%012llx", a >> 32, a >> 16 & 0xffff, a & 0xfff, 0x8000 | (b >> 48 & 0x3fff), b & 0xffffffffffff);
    return text;
}

/* ---- what is kept ---- */

struct kept {
    std::shared_ptr<const MessageEvent> event;
    int64_t expires_ms; /* monotonic; 0 is never */
};

struct subscription;

struct topic_entry {
    int64_t sequence = 0;
    std::deque<kept> ring;
    kept retained = {};
    std::vector<subscription *> subscribers;
};

static std::unordered_map<std::string, topic_entry> topics;
static std::unordered_map<std::string, subscription *> subscriptions;
static const std::string node_id = make_uuid();

static bool is_over(const kept &message) { return message.expires_ms && now_ms(CLOCK_MONOTONIC) >= message.expires_ms; }

/* ---- the service ---- */

static SidecarService::AsyncService service;
static std::unique_ptr<grpc::ServerCompletionQueue> queue;

struct waiter {
    virtual ~waiter() = default;
    virtual void on_done(bool ok) = 0;
};

/* One Subscribe stream. It goes when its last operation has come back from the queue and its client has gone. */
struct subscription : waiter {
    subscription() : writer(&context), gone(*this) {
        context.AsyncNotifyWhenDone(&gone);
        service.RequestSubscribe(&context, &request, &writer, queue.get(), queue.get(), this);
    }

    void on_done(bool ok) override {
        is_busy = false;
        if (!has_begun) return begin(ok);
        if (!ok) has_left = true;
        if (has_left) return leave();
        write_next();
    }

    bool enqueue(const kept &message) {
        bool is_full = waiting.size() >= limit;
        if (is_full) waiting.pop_front();
        waiting.push_back(message);
        if (!is_busy) write_next();
        return !is_full;
    }

    void end() {
        is_ending = true;
        if (!is_busy) write_next();
    }

private:
    struct notice : waiter {
        subscription &owner;
        explicit notice(subscription &owner) : owner(owner) {}
        void on_done(bool) override {
            owner.has_left = owner.is_told = true;
            if (!owner.is_busy) owner.leave();
        }
    };

    void begin(bool ok) {
        if (!ok) return delete this; /* the server is shutting down */
        new subscription;
        has_begun = true;
        if (request.topics().empty()) return finish({grpc::StatusCode::INVALID_ARGUMENT, "no topics"});
        if (request.max_buffer_size() > 0) limit = std::min<size_t>(limit, request.max_buffer_size());
        MessageEvent event;
        auto *info = event.mutable_subscription_info();
        id = "sub-" + make_uuid();
        info->set_subscription_id(id);
        *info->mutable_topics() = request.topics();
        info->set_timestamp_ms(now_ms(CLOCK_REALTIME));
        is_busy = true;
        writer.Write(event, this);
        subscriptions[id] = this;
        for (auto &name : request.topics()) join(topics[name]);
    }

    void join(topic_entry &topic) {
        topic.subscribers.push_back(this);
        if (!request.receive_retained() || !topic.retained.event || is_over(topic.retained)) return;
        auto event = std::make_shared<MessageEvent>();
        *event->mutable_retained_message() = topic.retained.event->message();
        waiting.push_back({event, topic.retained.expires_ms});
    }

    void write_next() {
        while (!waiting.empty() && is_over(waiting.front())) waiting.pop_front();
        if (!waiting.empty()) {
            auto event = waiting.front().event;
            waiting.pop_front();
            is_busy = true;
            writer.Write(*event, this);
        } else if (is_ending) finish(grpc::Status::OK);
    }

    void finish(const grpc::Status &status) {
        is_busy = has_left = true;
        writer.Finish(status, this);
    }

    void leave() {
        if (subscriptions.erase(id))
            for (auto &name : request.topics()) std::erase(topics[name].subscribers, this);
        if (is_told) delete this;
    }

    grpc::ServerContext context;
    SubscribeRequest request;
    grpc::ServerAsyncWriter<MessageEvent> writer;
    notice gone;
    std::string id;
    std::deque<kept> waiting;
    size_t limit = QUEUE_MESSAGES;
    bool has_begun = false, is_busy = false, is_ending = false, has_left = false, is_told = false;
};

static void publish(const PublishRequest &request, PublishResponse &response) {
    auto &topic = topics[request.topic()];
    auto event = std::make_shared<MessageEvent>();
    auto *message = event->mutable_message();
    message->set_message_id(make_uuid());
    message->set_topic(request.topic());
    message->set_payload(request.payload());
    message->set_content_type(request.content_type());
    message->set_timestamp_ms(now_ms(CLOCK_REALTIME));
    message->set_source_node_id(node_id);
    message->set_correlation_id(request.correlation_id());
    message->set_sequence_number(++topic.sequence);
    kept entry = {event, request.ttl_ms() > 0 ? now_ms(CLOCK_MONOTONIC) + request.ttl_ms() : 0};
    topic.ring.push_back(entry);
    if (topic.ring.size() > RING_MESSAGES) topic.ring.pop_front();
    if (request.retain()) topic.retained = request.payload().empty() ? kept{} : entry;
    int dropped = 0;
    for (auto *each : topic.subscribers) dropped += !each->enqueue(entry);
    response.set_success(true);
    response.set_message_id(message->message_id());
    response.set_subscriber_count(topic.subscribers.size());
    response.set_subscribers_dropped(dropped);
}

static grpc::Status answer(const PublishRequest &request, PublishResponse &response) {
    if (request.topic().empty()) return {grpc::StatusCode::INVALID_ARGUMENT, "no topic"};
    publish(request, response);
    return grpc::Status::OK;
}

static grpc::Status answer(const UnsubscribeRequest &request, UnsubscribeResponse &response) {
    auto found = subscriptions.find(request.subscription_id());
    response.set_success(found != subscriptions.end());
    if (found == subscriptions.end()) response.set_error_message("Subscription not found");
    else found->second->end();
    return grpc::Status::OK;
}

static grpc::Status answer(const GetTopicsRequest &, GetTopicsResponse &response) {
    for (auto &[name, topic] : topics)
        if (!topic.subscribers.empty()) (*response.mutable_topics())[name] = topic.subscribers.size();
    return grpc::Status::OK;
}

static grpc::Status answer(const GetPeersRequest &, GetPeersResponse &) { return grpc::Status::OK; }

/* One call that is answered by one message; begins to wait for the next as soon as it has come. */
template <class Request, class Response, auto request_call> struct unary : waiter {
    unary() : writer(&context) { (service.*request_call)(&context, &request, &writer, queue.get(), queue.get(), this); }

    void on_done(bool ok) override {
        if (is_answered || !ok) return delete this;
        new unary;
        is_answered = true;
        grpc::Status status = answer(request, response);
        if (status.ok()) writer.Finish(response, status, this);
        else writer.FinishWithError(status, this);
    }

private:
    grpc::ServerContext context;
    Request request;
    Response response;
    grpc::ServerAsyncResponseWriter<Response> writer;
    bool is_answered = false;
};

/* Nothing is ever paused here, so there is nothing to go on with. */
struct resumption : waiter {
    resumption() : writer(&context) { service.RequestResumeSubscribe(&context, &request, &writer, queue.get(), queue.get(), this); }

    void on_done(bool ok) override {
        if (is_answered || !ok) return delete this;
        new resumption;
        is_answered = true;
        writer.Finish(grpc::Status(grpc::StatusCode::NOT_FOUND, "No paused subscription found"), this);
    }

private:
    grpc::ServerContext context;
    ResumeSubscribeRequest request;
    grpc::ServerAsyncWriter<MessageEvent> writer;
    bool is_answered = false;
};

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "--version")) return printf("a daemon on grpc++ %s\n", grpc::Version().c_str()) < 0;
    if (argc != 2) return fprintf(stderr, "usage: %s HOST:PORT\n", argv[0]), 2;
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddListeningPort(argv[1], grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    queue = builder.AddCompletionQueue();
    auto server = builder.BuildAndStart();
    if (!server || !port) return fprintf(stderr, "cannot listen on %s\n", argv[1]), 1;
    new subscription;
    new resumption;
    new unary<PublishRequest, PublishResponse, &SidecarService::AsyncService::RequestPublish>;
    new unary<UnsubscribeRequest, UnsubscribeResponse, &SidecarService::AsyncService::RequestUnsubscribe>;
    new unary<GetTopicsRequest, GetTopicsResponse, &SidecarService::AsyncService::RequestGetTopics>;
    new unary<GetPeersRequest, GetPeersResponse, &SidecarService::AsyncService::RequestGetPeers>;
    void *tag;
    bool ok;
    while (queue->Next(&tag, &ok)) static_cast<waiter *>(tag)->on_done(ok);
}
