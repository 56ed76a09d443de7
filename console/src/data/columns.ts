// Attributes that pages ask for: only what is shown, since each cell costs the router time.

export const ROUTER_COLUMNS = [
    "name", "identity", "id", "type", "mode", "area", "version", "metadata", "addrCount", "linkCount", "nodeCount",
    "linkRouteCount", "autoLinkCount", "connectionCount", "presettledDeliveries", "droppedPresettledDeliveries",
    "acceptedDeliveries", "rejectedDeliveries", "releasedDeliveries", "modifiedDeliveries", "deliveriesDelayed1Sec",
    "deliveriesDelayed10Sec", "deliveriesStuck", "deliveriesIngress", "deliveriesEgress", "deliveriesTransit",
    "deliveriesIngressRouteContainer", "deliveriesEgressRouteContainer", "deliveriesRedirectedToFallback",
    "linksBlocked", "uptimeSeconds", "memoryUsage", "workerThreads",
    // Not in 1.19, which answers with `name` instead.
    "deliveriesIngressEdge",
];
export const CONNECTION_COLUMNS = [
    "identity", "container", "role", "dir", "host", "user", "sasl", "isEncrypted", "sslProto", "sslCipher", "tenant",
    "opened", "active", "operStatus", "uptimeSeconds", "lastDlvSeconds", "enableProtocolTrace",
    // Not in 1.19, which answers names that it does not know with others' values: only numbers are believed.
    "deliveriesIn", "deliveriesOut", "cost",
];
export const LINK_COLUMNS = [
    "identity", "linkName", "linkType", "linkDir", "owningAddr", "connectionId", "operStatus", "deliveryCount",
    "undeliveredCount", "unsettledCount", "creditAvailable", "zeroCreditSeconds", "settleRate", "deliveriesStuck",
    // Not in 1.19, which answers names that it does not know with others' values: see data/stall.ts.
    "stall", "stallSeconds", "stallText",
];
export const LINK_COLUMNS_OF_ATTENTION = [
    "identity", "linkDir", "linkType", "owningAddr", "connectionId", "zeroCreditSeconds", "undeliveredCount",
    "unsettledCount", "deliveriesStuck", "deliveryCount",
];
export const VHOST_COLUMNS_OF_ATTENTION = [
    "hostname", "connectionsDenied", "sessionDenied", "senderDenied", "receiverDenied", "maxMessageSizeDenied",
];
export const ADDRESS_COLUMNS = [
    "name", "distribution", "inProcess", "subscriberCount", "remoteCount", "containerCount", "deliveriesIngress",
    "deliveriesEgress", "deliveriesTransit", "deliveriesToContainer", "deliveriesFromContainer", "priority",
    "deliveriesRedirectedToFallback",
];
