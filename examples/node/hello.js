// Node over MQTT: subscribe, publish at QoS 1, print what arrives.
const mqtt = require("mqtt");

async function main(address) {
  const client = await mqtt.connectAsync(address, { protocolVersion: 5, clientId: "node-example" });
  const arrived = new Promise((resolve) => client.once("message", (topic, payload) => resolve(`${topic} ${payload}`)));
  await client.subscribeAsync("hello/node", { qos: 1 });
  await client.publishAsync("hello/node", "first light", { qos: 1 });
  console.log(await arrived);
  await client.endAsync();
}

main(process.argv[2] ?? "mqtt://localhost:1883").catch((error) => {
  console.error(error.message);
  process.exit(1);
});
