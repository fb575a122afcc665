// MQTT clients of mqtt.js, driven by the same lines of JSON as those in Go: see mqtt/main.go.

const mqtt = require("mqtt");
const readline = require("readline");

const clients = new Map();
const report = (event) => process.stdout.write(JSON.stringify(event) + "\n");
const decode = ({ topic, payload, qos, retain }) => ({ topic, payload: Buffer.from(payload, "base64"), qos, retain });

function connect(request) {
  const will = request.will ? decode(request.will) : undefined;
  const client = mqtt.connect(`mqtt://127.0.0.1:${request.port}`, {
    clientId: request.client,
    protocolVersion: request.version,
    clean: request.clean,
    properties: request.version === 5 ? { sessionExpiryInterval: request.expiry_s } : undefined,
    reconnectPeriod: 0,
    will,
  });
  clients.set(request.client, client);
  client.on("message", (topic, payload, { qos, retain }) =>
    report({ client: request.client, message: { topic, payload: payload.toString("base64"), qos, retain } }));
  client.on("close", () => report({ client: request.client, gone: true }));
  return new Promise((resolve, reject) => client.once("connect", resolve).once("error", reject));
}

const verbs = {
  connect,
  async subscribe({ client, filter, qos }) {
    const granted = await clients.get(client).subscribeAsync(filter, { qos });
    if (granted[0].qos > 2) throw new Error(`refused with ${granted[0].qos}`);
  },
  publish({ client, message }) {
    const { topic, payload, qos, retain } = decode(message);
    return clients.get(client).publishAsync(topic, payload, { qos, retain });
  },
  disconnect: ({ client }) => clients.get(client).endAsync(),
  async cut({ client }) {
    clients.get(client).stream.destroy();
  },
};

readline.createInterface({ input: process.stdin }).on("line", async (line) => {
  const request = JSON.parse(line);
  const response = { number: request.number, client: request.client };
  try {
    await verbs[request.verb](request);
  } catch (error) {
    response.error = String(error);
  }
  report(response);
}).on("close", () => process.exit(0));
