// Shared by all scripts: a connection that does not reconnect, and errors that end the script.
'use strict';
const fs = require('node:fs');
const container = require('rhea');

function fail(text) {
  console.error(text);
  process.exit(1);
}

// Return the connection options for WHERE: a port, ws://HOST:PORT/PATH, wss://…?ca=FILE, or
// amqps://USER:PASSWORD@HOST:PORT?mechanism=M&ca=FILE&certificate=FILE&key=FILE.
function settings(where) {
  if (!where.includes('://')) return { host: '127.0.0.1', port: Number(where), username: 'anonymous' };
  const url = new URL(where);
  const read = (name) => url.searchParams.get(name) && fs.readFileSync(url.searchParams.get(name));
  const mechanism = url.searchParams.get('mechanism');
  if (url.protocol === 'ws:' || url.protocol === 'wss:') {
    const { WebSocket } = require('ws');
    const opened = container.websocket_connect(WebSocket);
    return {
      connection_details: opened(url.origin + url.pathname, ['binary', 'amqp'], { ca: read('ca') || undefined }),
      username: 'anonymous',
    };
  }
  const secret = decodeURIComponent(url.password) || undefined;
  return {
    transport: 'tls',
    host: url.hostname,
    servername: url.hostname,
    port: Number(url.port),
    ca: read('ca') || undefined,
    cert: read('certificate') || undefined,
    key: read('key') || undefined,
    enable_sasl_external: mechanism === 'EXTERNAL',
    username: mechanism === 'EXTERNAL' ? undefined : decodeURIComponent(url.username) || 'anonymous',
    password: mechanism === 'PLAIN' ? secret : undefined,
    token: mechanism === 'XOAUTH2' ? secret : undefined,
  };
}

// Connect with a container of its own: events of a connection must not reach the handlers of another.
function connect(where) {
  const connection = container
    .create_container()
    .connect({ ...settings(where), reconnect: false });
  connection.on('connection_error', (context) => fail(`connection: ${context.connection.error || context.error}`));
  connection.on('disconnected', (context) => {
    if (context.error) fail(`disconnected: ${context.error}`);
  });
  return connection;
}

module.exports = { connect, fail };
