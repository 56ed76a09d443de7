// Receive and accept COUNT messages from ADDRESS; print their bodies as one JSON array.
'use strict';
const { connect, fail } = require('./common');
const [port, address, count] = process.argv.slice(2);
const bodies = [];
const connection = connect(port);
connection.on('receiver_open', () => console.error('attached'));
connection.on('message', (context) => {
  bodies.push(context.message.body);
  if (bodies.length === Number(count)) {
    console.log(JSON.stringify(bodies));
    context.receiver.close();
    context.connection.close();
  }
});
connection.on('receiver_error', (context) => fail(`receiver: ${context.receiver.error}`));
connection.open_receiver(address);
