// What all the scripts share: a connection without reconnecting, and errors that end the script.
'use strict';
const container = require('rhea');

function fail(text) {
  console.error(text);
  process.exit(1);
}

// A container of its own for each connection: events of one must not reach the handlers of another.
function connect(port) {
  const connection = container
    .create_container()
    .connect({ host: '127.0.0.1', port: Number(port), username: 'anonymous', reconnect: false });
  connection.on('connection_error', (context) => fail(`connection: ${context.connection.error}`));
  connection.on('disconnected', (context) => {
    if (context.error) fail(`disconnected: ${context.error}`);
  });
  return connection;
}

module.exports = { connect, fail };
