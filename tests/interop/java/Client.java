import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Enumeration;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * Client with Qpid JMS: Client send|receive|server|request|browse|transact PORT ADDRESS [COUNT [SELECTOR] | TEXT...]
 *
 * <p>Client each ADDRESS COUNT URI... sends and receives over a connection to each URI of Qpid JMS, one after another,
 * and prints the count or the error of each.
 *
 * <p>Prints one JSON array of strings, or a number, on standard output. Writes "attached" on standard error when its
 * consumer is attached.
 */
public final class Client {
    private static final long PATIENCE = 30_000; // milliseconds

    private final Session session;
    private final Queue queue;

    private Client(Session session, Queue queue) {
        this.session = session;
        this.queue = queue;
    }

    public static void main(String[] words) throws JMSException {
        String command = words[0];
        if (command.equals("each")) {
            show(List.of(words).subList(3, words.length).stream().map(uri -> loop(uri, words[1], words[2])).toList());
            return;
        }
        List<String> more = List.of(words).subList(3, words.length);
        var factory = new JmsConnectionFactory("amqp://127.0.0.1:" + words[1] + "?amqp.saslMechanisms=ANONYMOUS");
        try (Connection connection = factory.createConnection()) {
            boolean transacted = command.equals("transact");
            int mode = transacted ? Session.SESSION_TRANSACTED : Session.AUTO_ACKNOWLEDGE;
            Session session = connection.createSession(transacted, mode);
            Client client = new Client(session, session.createQueue(words[2]));
            connection.start();
            switch (command) {
                case "send" -> client.send(Integer.parseInt(more.get(0)));
                case "receive" -> client.receive(Integer.parseInt(more.get(0)), more.size() > 1 ? more.get(1) : null);
                case "browse" -> client.browse(more.isEmpty() ? null : more.get(0));
                case "transact" -> client.transact(Integer.parseInt(more.get(0)));
                case "server" -> client.serve();
                case "request" -> client.request(more);
                default -> throw new IllegalArgumentException(command);
            }
        }
    }

    private static String loop(String uri, String address, String count) {
        try (Connection connection = new JmsConnectionFactory(uri).createConnection()) {
            // send() blocks until the message is accepted, so the consumer needs a session, and thereby a thread, of its
            // own.
            Session taking = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            CountDownLatch left = new CountDownLatch(Integer.parseInt(count));
            taking.createConsumer(taking.createQueue(address)).setMessageListener(message -> left.countDown());
            connection.start();
            Session giving = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Client client = new Client(giving, giving.createQueue(address));
            MessageProducer producer = giving.createProducer(client.queue);
            for (int n = 0; n < Integer.parseInt(count); n++) {
                producer.send(client.numbered(n));
            }
            return left.await(PATIENCE, TimeUnit.MILLISECONDS) ? count : "messages are missing";
        } catch (JMSException | InterruptedException error) {
            StringBuilder why = new StringBuilder();
            for (Throwable one = error; one != null; one = one.getCause()) {
                why.append(one.getMessage()).append("; ");
            }
            return why.toString().replaceAll("[^\\w .,;:()\\[\\]=-]", " ");
        }
    }

    private static void show(List<String> texts) {
        System.out.println(texts.isEmpty() ? "[]" : "[\"" + String.join("\", \"", texts) + "\"]");
    }

    /** Sends durable messages, each accepted before the next, with a property `parity` for selectors. */
    private void send(int count) throws JMSException {
        MessageProducer producer = session.createProducer(queue);
        for (int n = 0; n < count; n++) {
            producer.send(numbered(n));
        }
        System.out.println(count);
    }

    private TextMessage numbered(int n) throws JMSException {
        TextMessage message = session.createTextMessage(Integer.toString(n));
        message.setStringProperty("parity", n % 2 == 0 ? "even" : "odd");
        return message;
    }

    private void receive(int count, String selector) throws JMSException {
        MessageConsumer consumer = session.createConsumer(queue, selector);
        System.err.println("attached");
        List<String> bodies = new ArrayList<>();
        while (bodies.size() < count) {
            bodies.add(text(consumer.receive(PATIENCE)));
        }
        show(bodies);
    }

    private static String text(Message message) throws JMSException {
        if (message == null) {
            throw new JMSException("no message came");
        }
        return message.getBody(String.class);
    }

    private void browse(String selector) throws JMSException {
        try (QueueBrowser browser = session.createBrowser(queue, selector)) {
            List<String> bodies = new ArrayList<>();
            for (Object message : Collections.list((Enumeration<?>) browser.getEnumeration())) {
                bodies.add(text((Message) message));
            }
            show(bodies);
        }
    }

    /** Sends messages in a transaction and rolls back, sends messages in a second one and commits. Receives the
     * committed messages and rolls back, receives them again and commits. Prints the bodies of the second time. */
    private void transact(int count) throws JMSException {
        MessageProducer producer = session.createProducer(queue);
        for (int n = 0; n < count; n++) {
            producer.send(session.createTextMessage("rolled back"));
        }
        session.rollback();
        for (int n = 0; n < count; n++) {
            producer.send(numbered(n));
        }
        session.commit();
        MessageConsumer consumer = session.createConsumer(queue);
        for (int n = 0; n < count; n++) {
            text(consumer.receive(PATIENCE));
        }
        session.rollback();
        List<String> bodies = new ArrayList<>();
        while (bodies.size() < count) {
            bodies.add(text(consumer.receive(PATIENCE)));
        }
        session.commit();
        show(bodies);
    }

    /** Answers requests with their text in capitals until the process is killed. */
    private void serve() throws JMSException {
        MessageConsumer consumer = session.createConsumer(queue);
        MessageProducer producer = session.createProducer(null);
        System.err.println("attached");
        while (true) {
            Message request = consumer.receive();
            TextMessage answer = session.createTextMessage(text(request).toUpperCase());
            answer.setJMSCorrelationID(request.getJMSCorrelationID());
            producer.send(request.getJMSReplyTo(), answer);
        }
    }

    private void request(List<String> texts) throws JMSException {
        Queue replies = session.createTemporaryQueue();
        MessageConsumer consumer = session.createConsumer(replies);
        MessageProducer producer = session.createProducer(queue);
        List<String> answers = new ArrayList<>();
        for (String text : texts) {
            TextMessage message = session.createTextMessage(text);
            message.setJMSReplyTo(replies);
            message.setJMSCorrelationID(text);
            producer.send(message);
            answers.add(text(consumer.receive(PATIENCE)));
        }
        show(answers);
    }
}
