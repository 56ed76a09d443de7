// Attach a receiver to ADDRESS, which must be refused; print condition and description.
'use strict';
const { connect, fail } = require('./common');
const [port, address] = process.argv.slice(2);
const connection = connect(port);
connection.on('receiver_error', (context) => {
  const error = context.receiver.error;
  console.log(JSON.stringify({ condition: error.condition, description: error.description }));
  context.connection.close();
});
connection.on('message', () => fail('a message came'));
connection.open_receiver(address);
