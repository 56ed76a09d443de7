// Send COUNT messages to ADDRESS as credit allows; print the outcomes as a JSON object of counts.
'use strict';
const { connect, fail } = require('./common');
const [port, address, count] = process.argv.slice(2);
const outcomes = { accepted: 0, released: 0, rejected: 0, modified: 0 };
let sent = 0;
let confirmed = 0;
const connection = connect(port);
function settled(name) {
  return (context) => {
    outcomes[name] += 1;
    confirmed += 1;
    if (confirmed === Number(count)) {
      console.log(JSON.stringify(outcomes));
      context.connection.close();
    }
  };
}
for (const name of Object.keys(outcomes)) connection.on(name, settled(name));
connection.on('sendable', (context) => {
  while (context.sender.sendable() && sent < Number(count)) {
    context.sender.send({ message_id: sent, body: { sequence: sent } });
    sent += 1;
  }
});
connection.on('sender_error', (context) => fail(`sender: ${context.sender.error}`));
connection.open_sender(address);
