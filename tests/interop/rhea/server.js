// Answer requests on ADDRESS over an anonymous sender: send the body in capitals to reply-to, with the correlation-id.
'use strict';
const { connect } = require('./common');
const [port, address] = process.argv.slice(2);
const connection = connect(port);
let sender;
connection.on('receiver_open', () => console.error('attached'));
connection.on('connection_open', (context) => {
  context.connection.open_receiver(address);
  sender = context.connection.open_sender({ target: {} });
});
connection.on('message', (context) => {
  const request = context.message;
  sender.send({ to: request.reply_to, correlation_id: request.correlation_id, body: String(request.body).toUpperCase() });
});
