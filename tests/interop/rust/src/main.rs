//! AMQP client with fe2o3-amqp: client COMMAND WHERE ADDRESS [ARGUMENT...]
//!
//! WHERE is a port, or a URL: amqp[s]://[USER:PASSWORD@]HOST:PORT?mechanism=M&ca=FILE&certificate=FILE&key=FILE, and
//! &idle=MILLISECONDS, &frame=OCTETS (max-frame-size), &window=TRANSFERS (incoming-window). The mechanism `none` leaves
//! the SASL layer out. Prints one JSON value on standard output; "attached" on standard error when messages can come.
//!
//! | command | arguments | prints |
//! | --- | --- | --- |
//! | send, send-settled | COUNT | the count; each message is confirmed before the next, or settled |
//! | pipeline | COUNT | number of messages by outcome; none waits for another |
//! | outcomes | MODE TEXT... | outcome of each message |
//! | anonymous | TEXT... | outcome of each message, from a sender without an address |
//! | send-large | SIZE... | outcome of each message |
//! | receive | COUNT [CREDIT] | bodies |
//! | receive-large | COUNT | lengths; fails if octets differ from what send-large sends |
//! | send-sections | | outcome of a message with all sections |
//! | receive-sections | | names of the sections that differ from what send-sections sends |
//! | receive-limited | COUNT SIZE | bodies; the link's max-message-size is SIZE |
//! | dispose | MODE OUTCOME... | bodies of the messages that got these outcomes |
//! | batches | ROUNDS CREDIT | bodies of each round, accepted together; nothing comes between rounds, without credit |
//! | drain | COUNT | bodies before the drain, and after new credit |
//! | request, server | TEXT... | answers, to a dynamic address; the server runs until it is ended |
//! | reattach | COUNT | bodies before and after both links were detached and attached again |
//! | resume | | bodies of a message left unsettled, and of one after the link was attached again ("resumed") |
//! | pause | MILLISECONDS | 2: the messages that were accepted before and after a pause |
//! | transact | COUNT | bodies of a committed transaction after one that was rolled back |
//!
//! MODE is the rcv-settle-mode of the link: first or second.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::future::Future;
use std::process;
use std::time::Duration;

use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::link::delivery::Delivery;
use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::sasl_profile::{SaslProfile, SaslScramSha1, SaslScramSha256, SaslScramSha512};
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::transaction::{
    Controller, Transaction, TransactionDischarge, TransactionPosting, TransactionRetirement,
};
use fe2o3_amqp::types::definitions::{self, AmqpError, ReceiverSettleMode, SenderSettleMode};
use fe2o3_amqp::types::messaging::{
    AmqpValue, ApplicationProperties, Body, DeliveryAnnotations, Footer, Header, Message, MessageAnnotations,
    MessageId, Modified, Outcome, Properties, Source, Target,
};
use fe2o3_amqp::types::primitives::{Binary, Symbol, Timestamp, Uuid, Value};
use fe2o3_amqp::{Connection, Receiver, Sendable, Sender, Session};
use serde_json::{json, Value as Json};
use tokio::time::timeout;
use url::Url;

type Query = BTreeMap<String, String>;
type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PATIENCE: Duration = Duration::from_secs(30);
/// Time in which a message would arrive that must not arrive.
const SILENCE: Duration = Duration::from_millis(200);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [command, place, address, arguments @ ..] = words.as_slice() else {
        fail("arguments", "expected COMMAND WHERE ADDRESS [ARGUMENT...]");
    };
    let work = run(command, place, address, arguments);
    let done = match command.as_str() {
        "server" => work.await,
        _ => timeout(PATIENCE, work).await.unwrap_or_else(|late| Err(late.into())),
    };
    match done {
        Ok(found) => println!("{found}"),
        Err(error) => fail(command, &error.to_string()),
    }
}

fn fail(what: &str, why: &str) -> ! {
    eprintln!("{what}: {why}");
    process::exit(1);
}

async fn run(command: &str, place: &str, address: &str, arguments: &[String]) -> Result<Json> {
    let url = match place.parse::<u16>() {
        Ok(port) => Url::parse(&format!("amqp://127.0.0.1:{port}"))?,
        Err(_) => Url::parse(place)?,
    };
    let query: Query = url.query_pairs().into_owned().collect();
    let mut connection = connect(&url, &query).await?;
    let mut settings = Session::builder();
    if let Some(transfers) = query.get("window") {
        settings = settings.incoming_window(transfers.parse()?);
    }
    let mut session = settings.begin(&mut connection).await?;
    let client = &mut Client { session: &mut session, address };
    let found = match command {
        "send" => client.send(number(arguments, 0)?, None).await,
        "send-settled" => client.send(number(arguments, 0)?, Some(true)).await,
        "pipeline" => client.pipeline(number(arguments, 0)?).await,
        "outcomes" => client.outcomes(mode(arguments)?, &arguments[1..]).await,
        "anonymous" => client.anonymous(arguments).await,
        "send-large" => client.send_large(arguments).await,
        "receive" => client.receive(number(arguments, 0)?, number(arguments, 1).unwrap_or(200)).await,
        "receive-large" => client.receive_large(number(arguments, 0)?).await,
        "send-sections" => client.send_sections().await,
        "receive-sections" => client.receive_sections().await,
        "receive-limited" => client.receive_limited(number(arguments, 0)?, number(arguments, 1)?).await,
        "dispose" => client.dispose(mode(arguments)?, &arguments[1..]).await,
        "batches" => client.batches(number(arguments, 0)?, number(arguments, 1)?).await,
        "drain" => client.drain(number(arguments, 0)?).await,
        "request" => client.request(arguments).await,
        "server" => client.serve().await,
        "reattach" => client.reattach(number(arguments, 0)?).await,
        "resume" => client.resume().await,
        "pause" => client.pause(number(arguments, 0)?).await,
        "transact" => client.transact(number(arguments, 0)?).await,
        _ => Err("unknown command".into()),
    }?;
    session.end().await?;
    connection.close().await?;
    Ok(found)
}

fn number(words: &[String], index: usize) -> Result<u32> {
    Ok(words.get(index).ok_or("a number is missing")?.parse()?)
}

fn mode(words: &[String]) -> Result<ReceiverSettleMode> {
    match words.first().map(String::as_str) {
        Some("first") => Ok(ReceiverSettleMode::First),
        Some("second") => Ok(ReceiverSettleMode::Second),
        _ => Err("expected the mode first or second".into()),
    }
}

/// Open a connection.
async fn connect(url: &Url, query: &Query) -> Result<ConnectionHandle<()>> {
    let (user, password) = (url.username().to_owned(), url.password().unwrap_or_default().to_owned());
    let profile = match query.get("mechanism").map_or("ANONYMOUS", String::as_str) {
        "none" => None,
        "ANONYMOUS" => Some(SaslProfile::Anonymous),
        "EXTERNAL" => Some(SaslProfile::External),
        "PLAIN" => Some(SaslProfile::Plain { username: user, password }),
        "SCRAM-SHA-1" => Some(SaslScramSha1::new(user, password).into()),
        "SCRAM-SHA-256" => Some(SaslScramSha256::new(user, password).into()),
        "SCRAM-SHA-512" => Some(SaslScramSha512::new(user, password).into()),
        other => return Err(format!("unknown mechanism {other}").into()),
    };
    // The router sends clients with the same container id to the same worker.
    let name = format!("interop-rust-{}", process::id());
    let mut builder = Connection::builder().container_id(name);
    if let Some(profile) = profile {
        builder = builder.sasl_profile(profile);
    }
    if let Some(milliseconds) = query.get("idle") {
        builder = builder.idle_time_out(milliseconds.parse::<u32>()?);
    }
    if let Some(octets) = query.get("frame") {
        builder = builder.max_frame_size(octets.parse::<u32>()?);
    }
    // The user in the URL would override the profile with PLAIN.
    let bare = Url::parse(&format!(
        "{}://{}:{}",
        url.scheme(),
        url.host_str().ok_or("no host")?,
        url.port().ok_or("no port")?
    ))?;
    if url.scheme() == "amqp" {
        return Ok(builder.open(bare).await?);
    }
    // TLS begins with the first octet: the router has no upgrade by AMQP's header for TLS.
    let builder = builder.alt_tls_establishment(true).tls_connector(tls(query)?);
    Ok(builder.open(bare).await?)
}

/// Return the TLS settings: the authority that the client trusts and, if given, its own certificate.
fn tls(query: &Query) -> Result<tokio_native_tls::TlsConnector> {
    let authority = fs::read(query.get("ca").ok_or("no ca")?)?;
    let mut settings = native_tls::TlsConnector::builder();
    settings.disable_built_in_roots(true);
    settings.add_root_certificate(native_tls::Certificate::from_pem(&authority)?);
    if let (Some(certificate), Some(key)) = (query.get("certificate"), query.get("key")) {
        settings.identity(native_tls::Identity::from_pkcs8(&fs::read(certificate)?, &fs::read(key)?)?);
    }
    Ok(settings.build()?.into())
}

/// Links to one address.
struct Client<'a> {
    session: &'a mut SessionHandle<()>,
    address: &'a str,
}

impl Client<'_> {
    async fn sender(&mut self) -> Result<Sender> {
        Ok(Sender::attach(self.session, "sender", self.address).await?)
    }

    async fn receiver(&mut self, credit: CreditMode) -> Result<Receiver> {
        let builder = Receiver::builder().name("receiver").source(self.address);
        let receiver = builder.credit_mode(credit).attach(self.session).await?;
        eprintln!("attached");
        Ok(receiver)
    }

    async fn send(&mut self, count: u32, settled: Option<bool>) -> Result<Json> {
        let builder = Sender::builder().name("sender").target(self.address);
        let mode = if settled.is_some() { SenderSettleMode::Settled } else { SenderSettleMode::Mixed };
        let mut sender = builder.sender_settle_mode(mode).attach(self.session).await?;
        for n in 0..count {
            let message = Sendable::builder().message(durable(&n.to_string())).settled(settled);
            confirmed(sender.send(message.build()).await?)?;
        }
        sender.close().await?;
        Ok(json!(count))
    }

    async fn pipeline(&mut self, count: u32) -> Result<Json> {
        let mut sender = self.sender().await?;
        let mut pending = Vec::new();
        for n in 0..count {
            pending.push(sender.send_batchable(n.to_string()).await?);
        }
        let mut found: BTreeMap<String, u32> = BTreeMap::new();
        for outcome in pending {
            *found.entry(name(&outcome.await?).to_owned()).or_default() += 1;
        }
        sender.close().await?;
        Ok(json!(found))
    }

    async fn outcomes(&mut self, mode: ReceiverSettleMode, texts: &[String]) -> Result<Json> {
        let builder = Sender::builder().name("sender").target(self.address);
        let mut sender = builder.receiver_settle_mode(mode).attach(self.session).await?;
        let mut found = Vec::new();
        for text in texts {
            found.push(shown(&sender.send(text.as_str()).await?));
        }
        sender.close().await?;
        Ok(json!(found))
    }

    async fn anonymous(&mut self, texts: &[String]) -> Result<Json> {
        let mut sender = anonymous_sender(self.session).await?;
        let mut found = Vec::new();
        for text in texts {
            let properties = Properties::builder().to(self.address).build();
            let message = Message::builder().properties(properties).value(text.as_str()).build();
            found.push(shown(&sender.send(message).await?));
        }
        sender.close().await?;
        Ok(json!(found))
    }

    async fn send_large(&mut self, sizes: &[String]) -> Result<Json> {
        let mut sender = self.sender().await?;
        let mut found = Vec::new();
        for size in sizes {
            let message = Message::builder().data(Binary::from(octets(size.parse()?))).build();
            found.push(shown(&sender.send(message).await?));
        }
        sender.close().await?;
        Ok(json!(found))
    }

    async fn receive(&mut self, count: u32, credit: u32) -> Result<Json> {
        let mut receiver = self.receiver(CreditMode::Auto(credit)).await?;
        let bodies = take(&mut receiver, count).await?;
        receiver.close().await?;
        Ok(json!(bodies))
    }

    async fn receive_large(&mut self, count: u32) -> Result<Json> {
        let mut receiver = self.receiver(CreditMode::default()).await?;
        let mut lengths = Vec::new();
        for _ in 0..count {
            let delivery: Delivery<Body<Value>> = receiver.recv().await?;
            receiver.accept(&delivery).await?;
            let sections = delivery.body().try_as_data().map_err(|_| "the body is no data")?;
            let found: Vec<u8> = sections.flat_map(|section| section.to_vec()).collect();
            if found != octets(found.len()) {
                return Err("octets differ".into());
            }
            lengths.push(found.len());
        }
        receiver.close().await?;
        Ok(json!(lengths))
    }

    async fn send_sections(&mut self) -> Result<Json> {
        let mut sender = self.sender().await?;
        let outcome = sender.send(all_sections()).await?;
        sender.close().await?;
        Ok(shown(&outcome))
    }

    async fn receive_sections(&mut self) -> Result<Json> {
        let mut receiver = self.receiver(CreditMode::default()).await?;
        let delivery: Delivery<Body<Value>> = receiver.recv().await?;
        receiver.accept(&delivery).await?;
        receiver.close().await?;
        let (found, sent) = (delivery.message(), all_sections());
        let equal = [
            ("header", found.header == sent.header),
            ("message-annotations", found.message_annotations == sent.message_annotations),
            ("properties", found.properties == sent.properties),
            ("application-properties", found.application_properties == sent.application_properties),
            ("body", matches!(&found.body, Body::Value(body) if *body == sent.body)),
            ("footer", found.footer == sent.footer),
        ];
        Ok(json!(equal.iter().filter(|section| !section.1).map(|section| section.0).collect::<Vec<_>>()))
    }

    async fn receive_limited(&mut self, count: u32, size: u32) -> Result<Json> {
        let builder = Receiver::builder().name("receiver").source(self.address);
        let mut receiver = builder.max_message_size(u64::from(size)).attach(self.session).await?;
        eprintln!("attached");
        let bodies = take(&mut receiver, count).await?;
        receiver.close().await?;
        Ok(json!(bodies))
    }

    async fn dispose(&mut self, mode: ReceiverSettleMode, outcomes: &[String]) -> Result<Json> {
        let builder = Receiver::builder().name("receiver").source(self.address);
        let mut receiver = builder.receiver_settle_mode(mode).attach(self.session).await?;
        eprintln!("attached");
        let mut bodies = Vec::new();
        for outcome in outcomes {
            let delivery: Delivery<Body<Value>> = receiver.recv().await?;
            match outcome.as_str() {
                "accept" => receiver.accept(&delivery).await?,
                "reject" => {
                    let why = definitions::Error::new(AmqpError::NotAllowed, "not today".to_owned(), None);
                    receiver.reject(&delivery, why).await?;
                }
                "release" => receiver.release(&delivery).await?,
                "modify" => {
                    let (delivery_failed, undeliverable_here) = (Some(true), Some(true));
                    let modified = Modified { delivery_failed, undeliverable_here, message_annotations: None };
                    receiver.modify(&delivery, modified).await?;
                }
                other => return Err(format!("unknown outcome {other}").into()),
            }
            bodies.push(text(&delivery)?);
        }
        receiver.close().await?;
        Ok(json!(bodies))
    }

    async fn batches(&mut self, rounds: u32, credit: u32) -> Result<Json> {
        let mut receiver = self.receiver(CreditMode::Manual).await?;
        let mut found = Vec::new();
        for _ in 0..rounds {
            receiver.set_credit(credit).await?;
            let mut batch: Vec<Delivery<Body<Value>>> = Vec::new();
            for _ in 0..credit {
                batch.push(receiver.recv().await?);
            }
            receiver.accept_all(&batch).await?;
            found.push(batch.iter().map(text).collect::<Result<Vec<String>>>()?);
            silent(receiver.recv::<Body<Value>>()).await?;
        }
        receiver.close().await?;
        Ok(json!(found))
    }

    async fn drain(&mut self, count: u32) -> Result<Json> {
        let mut receiver = self.receiver(CreditMode::Manual).await?;
        let mut sender = self.sender().await?;
        receiver.set_credit(2 * count).await?;
        for n in 0..count {
            drop(sender.send_batchable(n.to_string()).await?);
        }
        let mut bodies = take(&mut receiver, count).await?;
        receiver.drain().await?;
        silent(receiver.recv::<Body<Value>>()).await?;
        let late = sender.send_batchable("late").await?;
        silent(receiver.recv::<Body<Value>>()).await?;
        receiver.set_credit(1).await?;
        bodies.extend(take(&mut receiver, 1).await?);
        confirmed(late.await?)?;
        Ok(json!(bodies))
    }

    async fn request(&mut self, texts: &[String]) -> Result<Json> {
        let source = Source::builder().dynamic(true).build();
        let mut receiver = Receiver::builder().name("answers").source(source).attach(self.session).await?;
        let given = receiver.source().as_ref().and_then(|source| source.address.clone());
        let reply_to = given.ok_or("no dynamic address")?;
        let mut sender = self.sender().await?;
        let mut answers = Vec::new();
        for (n, text) in texts.iter().enumerate() {
            let properties = Properties::builder().reply_to(reply_to.clone()).correlation_id(n as u64).build();
            let message = Message::builder().properties(properties).value(text.as_str()).build();
            confirmed(sender.send(message).await?)?;
            let delivery: Delivery<Body<Value>> = receiver.recv().await?;
            receiver.accept(&delivery).await?;
            let found = delivery.message().properties.as_ref().and_then(|found| found.correlation_id.clone());
            if found != Some(MessageId::Ulong(n as u64)) {
                return Err(format!("correlation-id {found:?} instead of {n}").into());
            }
            answers.push(self::text(&delivery)?);
        }
        sender.close().await?;
        receiver.close().await?;
        Ok(json!(answers))
    }

    /// Answer requests with their body in capitals.
    async fn serve(&mut self) -> Result<Json> {
        let mut sender = anonymous_sender(self.session).await?;
        let mut receiver = self.receiver(CreditMode::default()).await?;
        loop {
            let delivery: Delivery<Body<Value>> = receiver.recv().await?;
            let asked = delivery.message().properties.clone().ok_or("no properties")?;
            let properties =
                Properties { to: asked.reply_to, correlation_id: asked.correlation_id, ..Properties::default() };
            let answer = Message::builder().properties(properties).value(text(&delivery)?.to_uppercase()).build();
            // Before the answer: the requester accepts that only when its request has an outcome.
            receiver.accept(&delivery).await?;
            confirmed(sender.send(answer).await?)?;
        }
    }

    async fn reattach(&mut self, count: u32) -> Result<Json> {
        let mut receiver = self.receiver(CreditMode::default()).await?;
        let mut sender = self.sender().await?;
        let mut bodies = exchange(&mut sender, &mut receiver, count).await?;
        let detached = sender.detach().await.map_err(|(_, error)| error)?;
        let waiting = receiver.detach().await.map_err(|(_, error)| error)?;
        receiver = waiting.resume().await?.into_receiver();
        sender = detached.resume().await?;
        bodies.extend(exchange(&mut sender, &mut receiver, count).await?);
        sender.close().await?;
        receiver.close().await?;
        Ok(json!(bodies))
    }

    async fn resume(&mut self) -> Result<Json> {
        let mut receiver = self.receiver(CreditMode::default()).await?;
        let unsettled: Delivery<Body<Value>> = receiver.recv().await?;
        let mut bodies = vec![text(&unsettled)?];
        let detached = receiver.detach().await.map_err(|(_, error)| error)?;
        receiver = detached.resume().await?.into_receiver();
        eprintln!("resumed");
        bodies.extend(take(&mut receiver, 1).await?);
        receiver.close().await?;
        Ok(json!(bodies))
    }

    async fn pause(&mut self, milliseconds: u32) -> Result<Json> {
        let mut sender = self.sender().await?;
        confirmed(sender.send("before").await?)?;
        tokio::time::sleep(Duration::from_millis(milliseconds.into())).await;
        confirmed(sender.send("after").await?)?;
        sender.close().await?;
        Ok(json!(2))
    }

    async fn transact(&mut self, count: u32) -> Result<Json> {
        let controller = Controller::attach(self.session, "controller").await?;
        let mut sender = self.sender().await?;
        for commit in [false, true] {
            let transaction = Transaction::declare(&controller, None).await?;
            for n in 0..count {
                let body = if commit { n.to_string() } else { "rolled back".to_owned() };
                transaction.post(&mut sender, durable(&body)).await?;
            }
            discharge(transaction, commit).await?;
        }
        sender.close().await?;
        let mut bodies = Vec::new();
        for commit in [false, true] {
            let transaction = Transaction::declare(&controller, None).await?;
            let mut receiver = self.receiver(CreditMode::Manual).await?;
            receiver.set_credit(count).await?;
            bodies.clear();
            for _ in 0..count {
                let delivery: Delivery<Body<Value>> = receiver.recv().await?;
                transaction.accept(&mut receiver, &delivery).await?;
                bodies.push(text(&delivery)?);
            }
            discharge(transaction, commit).await?;
            receiver.close().await?;
        }
        controller.close().await?;
        Ok(json!(bodies))
    }
}

async fn anonymous_sender(session: &mut SessionHandle<()>) -> Result<Sender> {
    let builder = Sender::builder().name("anonymous").target(Target::builder().build());
    Ok(builder.attach(session).await?)
}

async fn discharge(transaction: Transaction<'_>, commit: bool) -> Result<()> {
    let end = if commit { transaction.commit().await } else { transaction.rollback().await };
    Ok(end?)
}

/// Send messages and receive them over two links of one session.
async fn exchange(sender: &mut Sender, receiver: &mut Receiver, count: u32) -> Result<Vec<String>> {
    let mut pending = Vec::new();
    for n in 0..count {
        pending.push(sender.send_batchable(n.to_string()).await?);
    }
    let bodies = take(receiver, count).await?;
    for outcome in pending {
        confirmed(outcome.await?)?;
    }
    Ok(bodies)
}

/// Accept `count` messages; return their bodies.
async fn take(receiver: &mut Receiver, count: u32) -> Result<Vec<String>> {
    let mut bodies = Vec::new();
    for _ in 0..count {
        let delivery: Delivery<Body<Value>> = receiver.recv().await?;
        receiver.accept(&delivery).await?;
        bodies.push(text(&delivery)?);
    }
    Ok(bodies)
}

/// Fail if a message arrives without credit.
async fn silent<T>(arrival: impl Future<Output = T>) -> Result<()> {
    match timeout(SILENCE, arrival).await {
        Ok(_) => Err("a message or an error came without credit".into()),
        Err(_) => Ok(()),
    }
}

fn durable(text: &str) -> Message<AmqpValue<String>> {
    Message::builder().header(Header::builder().durable(true).build()).value(text.to_owned()).build()
}

/// Return a message with all sections and fields that a router passes on; delivery annotations are for the router.
fn all_sections() -> Message<AmqpValue<Value>> {
    let (key, text) = (|name: &str| Symbol::from(name), |text: &str| Value::String(text.to_owned()));
    let when = Timestamp::from_milliseconds(4_000_000_000_000);
    let properties = Properties::builder()
        .message_id(MessageId::Uuid(Uuid::from([7; 16])))
        .user_id(Binary::from(b"user".to_vec()))
        .to("elsewhere")
        .subject("subject")
        .reply_to("answers")
        .correlation_id(MessageId::Binary(Binary::from(vec![0, 255])))
        .content_type("text/plain")
        .content_encoding("identity")
        .absolute_expiry_time(when.clone())
        .creation_time(when)
        .group_id("group".to_owned())
        .group_sequence(u32::MAX)
        .reply_to_group_id("others".to_owned());
    let body = [("list", Value::List(vec![Value::Null, Value::Bool(true), Value::Long(-1)])), ("text", text("ä€"))];
    Message::builder()
        .header(Header::builder().durable(true).priority(7).ttl(60_000).delivery_count(2).build())
        .delivery_annotations(DeliveryAnnotations::builder().insert(key("x-opt-hop"), text("one hop")).build())
        .message_annotations(MessageAnnotations::builder().insert(key("x-opt-trace"), text("kept")).build())
        .properties(properties.build())
        .application_properties(
            ApplicationProperties::builder().insert("text", "value").insert("number", 1u64).insert("yes", true).build(),
        )
        .value(Value::Map(body.into_iter().map(|(name, value)| (text(name), value)).collect()))
        .footer(Footer::builder().insert(key("x-opt-foot"), text("last")).build())
        .build()
}

/// Octets of a large message: a pattern whose period is no power of two.
fn octets(size: usize) -> Vec<u8> {
    (0..size).map(|n| (n % 251) as u8).collect()
}

/// Return the text of a data section or of a string value.
fn text(delivery: &Delivery<Body<Value>>) -> Result<String> {
    match delivery.body() {
        Body::Value(value) => match &value.0 {
            Value::String(text) => Ok(text.clone()),
            other => Err(format!("the body is {other:?}").into()),
        },
        Body::Data(sections) => Ok(String::from_utf8(sections.iter().flat_map(|one| one.0.to_vec()).collect())?),
        other => Err(format!("the body is {other:?}").into()),
    }
}

fn name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Accepted(_) => "accepted",
        Outcome::Rejected(_) => "rejected",
        Outcome::Released(_) => "released",
        Outcome::Modified(_) => "modified",
        Outcome::Declared(_) => "declared",
    }
}

fn confirmed(outcome: Outcome) -> Result<()> {
    match outcome {
        Outcome::Accepted(_) => Ok(()),
        other => Err(format!("the outcome is {other:?}").into()),
    }
}

/// Return the name of an outcome and its fields.
fn shown(outcome: &Outcome) -> Json {
    match outcome {
        Outcome::Rejected(rejected) => {
            let error = rejected.error.as_ref();
            let condition = error.map(|error| &error.condition);
            json!(["rejected", condition, error.and_then(|error| error.description.clone())])
        }
        Outcome::Modified(modified) => json!(["modified", modified.delivery_failed, modified.undeliverable_here]),
        other => json!([name(other)]),
    }
}
