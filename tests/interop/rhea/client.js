// Send each TEXT to ADDRESS as a request with a dynamic reply-to; print the answers as a JSON array.
'use strict';
const { connect, fail } = require('./common');
const [port, address, ...texts] = process.argv.slice(2);
const answers = [];
const connection = connect(port);
let receiver;
let sender;
connection.on('connection_open', (context) => {
  sender = context.connection.open_sender(address);
  receiver = context.connection.open_receiver({ source: { dynamic: true } });
});
let asked = false;
function ask() {
  if (asked || !receiver.remote.attach || !sender.sendable()) return;
  asked = true;
  texts.forEach((body, n) => sender.send({ reply_to: receiver.source.address, correlation_id: n, body }));
}
connection.on('receiver_open', ask);
connection.on('sendable', ask);
connection.on('message', (context) => {
  answers[context.message.correlation_id] = context.message.body;
  if (Object.keys(answers).length === texts.length) {
    console.log(JSON.stringify(answers));
    context.connection.close();
  }
});
connection.on('sender_error', (context) => fail(`sender: ${context.sender.error}`));
