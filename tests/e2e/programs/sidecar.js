// NexusD's service with @grpc/grpc-js: publishes, subscribes, pauses, resumes; prints what came as JSON.

const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const [address, proto, topic] = process.argv.slice(2);
const options = { keepCase: true, longs: Number, oneofs: true, defaults: true };
const { nexusd } = grpc.loadPackageDefinition(loader.loadSync(proto, options));
const service = new nexusd.sidecar.SidecarService(address, grpc.credentials.createInsecure());

const call = (method, request) => new Promise((resolve, reject) =>
  service[method](request, (error, response) => (error ? reject(error) : resolve(response))));
const publish = (name, text, more = {}) => call("Publish", { topic: name, payload: Buffer.from(text), ...more });

// Subscription whose events are read one by one: its info, then messages.
async function open(stream) {
  const events = stream[Symbol.asyncIterator]();
  const next = async () => (await events.next()).value;
  return {
    info: (await next()).subscription_info,
    async message() {
      const event = await next();
      const { sequence_number, payload } = event[event.event];
      return [event.event, sequence_number, payload.toString()];
    },
    close() {
      stream.on("error", () => {}).cancel();
    },
  };
}

(async () => {
  const told = {};
  await publish(topic, "kept", { retain: true });
  const first = await open(service.Subscribe({ topics: [topic], client_id: "grpc-js", receive_retained: true }));
  told.retained = await first.message();
  told.subscribers = (await publish(topic, "live")).subscriber_count;
  told.live = await first.message();
  const { subscription_id } = first.info;
  told.paused = (await call("Unsubscribe", { subscription_id, pause: true })).success;
  await publish(topic, "missed");
  const second = await open(service.ResumeSubscribe({
    subscription_id,
    topics: [topic],
    gap_recovery_mode: "GAP_RECOVERY_REPLAY_BUFFER",
    last_sequence_per_topic: { [topic]: 2 },
  }));
  told.gap = second.info.gap_detected;
  told.replayed = await second.message();
  told.topics = Object.keys((await call("GetTopics", {})).topics).includes(topic);
  told.refused = await publish("no/#/name", "").catch((error) => error.code);
  second.close();
  service.close();
  console.log(JSON.stringify(told));
})();
