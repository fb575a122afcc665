/** The nodes of a cluster, as this node knows them. */

import { get, poll } from "../api.js";
import { replace } from "../dom.js";
import * as format from "../format.js";
import { badge, facts, failure } from "../widgets.js";

const POLL_MS = 3_000;

export function show(content, context) {
  poll(POLL_MS, async () => {
    const told = await get("/cluster/status", context);
    replace(content,
      facts([
        ["This node", told.node_id], ["Role", badge(told.is_leader ? "leader" : "follower", told.is_leader ? "good" : "plain")], ["Leader", told.cluster?.leader],
        ["Nodes", format.count(told.node_count)], ["State", told.status], ["Details", told.details],
        ["Connections", format.count(told.connections)], ["Sessions", format.count(told.sessions)], ["Subscriptions", format.count(told.subscriptions)],
        ["Topics", format.count(told.topics)], ["Retained values", format.count(told.retained_messages)],
      ]));
  }, context.signal, (error) => error.status > 0 && replace(content, failure(error)));
}
