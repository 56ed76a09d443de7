// Attach COUNT receivers to ADDRESS on one connection, a sender on another; print the number of copies of a message.
'use strict';
const { connect, fail } = require('./common');
const [port, address, count] = process.argv.slice(2);
const listening = connect(port);
const sending = connect(port);
let attached = 0;
let copies = 0;
let outcome = null;
function finish() {
  if (copies < Number(count) || outcome === null) return;
  console.log(JSON.stringify({ copies, outcome }));
  listening.close();
  sending.close();
}
listening.on('receiver_open', () => {
  attached += 1;
  if (attached === Number(count)) sending.open_sender(address);
});
listening.on('message', () => {
  copies += 1;
  finish();
});
let sent = false;
sending.on('sendable', (context) => {
  if (sent) return;
  sent = true;
  context.sender.send({ body: 'to all' });
});
for (const name of ['accepted', 'released', 'rejected', 'modified']) {
  sending.on(name, () => {
    outcome = name;
    finish();
  });
}
listening.on('receiver_error', (context) => fail(`receiver: ${context.receiver.error}`));
for (let n = 0; n < Number(count); n += 1) listening.open_receiver({ name: `r${n}`, source: { address } });
