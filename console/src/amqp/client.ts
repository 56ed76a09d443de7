// A connection to the router over WebSocket: it logs in, asks management, and comes back by itself when it was lost.
import rhea from "rhea";
import type { AmqpError, Connection, Context, Message, Receiver, Sender } from "rhea";
import { RequestError } from "./answer.ts";
import type { Answer } from "./answer.ts";
import { scramMechanisms } from "./scram.ts";
import { Sessions } from "./session.ts";
import type { Session } from "./session.ts";

export type State = "connecting" | "login" | "open" | "lost";

/** A password, or a session that began with one. */
export type Credentials = { user: string; password: string } | { user: string; session: Session };

interface Waiting {
    done: (answer: Answer) => void;
    failed: (error: RequestError) => void;
    timer: ReturnType<typeof setTimeout> | undefined;
    follows: ((subject: string, body: unknown) => void) | undefined;
}

const TIMEOUT = 20_000; // ms until a request without an answer has failed
const FIRST_RETRY = 500; // ms until a lost connection is tried again
const LAST_RETRY = 8_000;

export class Client {
    state: State = "connecting";
    /** Why there is no connection, for people. */
    reason = "";
    user: string | null = null;
    /** The id of the router at the other end. */
    router = "";
    /** How often a connection was opened. */
    generation = 0;

    private readonly url: string;
    private readonly changed: () => void;
    private readonly sessions: Sessions;
    /** Keys of this login, which are kept once it has succeeded. */
    private derived: Omit<Session, "until"> | null = null;
    private connection: Connection | null = null;
    private credentials: Credentials | null = null;
    private replyTo: string | null = null;
    private readonly senders = new Map<string, Sender>();
    private readonly queued = new Map<string, Message[]>();
    private readonly waiting = new Map<string, Waiting>();
    private next = 0;
    private retry = FIRST_RETRY;
    private timer: ReturnType<typeof setTimeout> | undefined;

    constructor(url: string, changed: () => void, sessions = new Sessions()) {
        this.url = url;
        this.changed = changed;
        this.sessions = sessions;
    }

    /** Connect, with these credentials, with the session of this tab, or as a nameless client. */
    open(credentials: Credentials | null = null): void {
        const session = this.sessions.read();
        this.credentials = credentials ?? (session === null ? null : { user: session.user, session });
        clearTimeout(this.timer);
        this.drop();
        this.set(this.generation && this.state !== "login" ? "lost" : "connecting", "");
        this.start();
    }

    /** Forget the credentials, and show the page to log in. */
    logOut(): void {
        this.credentials = null;
        this.sessions.drop();
        clearTimeout(this.timer);
        const connection = this.connection;
        this.drop();
        connection?.close();
        this.set("login", "");
    }

    /** Ask for the password: the session is over, or the router does not take it. */
    private endSession(): void {
        this.logOut();
        this.set("login", "The session has ended: log in again");
    }

    private start(): void {
        if (this.credentials !== null && "session" in this.credentials && this.sessions.read() === null) {
            this.endSession();
            return;
        }
        const sasl = this.credentials === null ? { username: "anonymous" } : {
            username: this.credentials.user, password: "password" in this.credentials ? this.credentials.password : "",
            sasl_mechanisms: scramMechanisms(this.credentials, (keys) => {
                if (keys === null) this.endSession();
                else this.derived = keys;
            }),
        };
        this.derived = null;
        let connection: Connection;
        try {
            connection = rhea.connect({
                connection_details: rhea.websocket_connect(WebSocket)(this.url, ["amqp"]),
                container_id: `console-${crypto.getRandomValues(new Uint32Array(1))[0]!.toString(36)}`,
                properties: { product: "Sluice console" },
                reconnect: false,
                idle_time_out: 15_000,
                ...sasl,
            });
        } catch (error) {
            this.lose(String(error));
            return;
        }
        this.connection = connection;
        const mine = (call: (context: Context) => void) => (context: Context) => {
            if (this.connection === connection) call(context);
        };
        connection.on("connection_open", mine(() => this.opened(connection)));
        connection.on("connection_error", mine((context) => this.refused(context.error)));
        connection.on("connection_close", mine((context) => this.lose(text(context.error) || "the router ended it")));
        connection.on("disconnected", mine((context) => this.lose(text(context.error))));
        connection.on("error", mine((context) => this.lose(text(context.error))));
    }

    private opened(connection: Connection): void {
        this.router = connection.container_id;
        const receiver: Receiver = connection.open_receiver({ source: { address: "", dynamic: true }, credit_window: 200 });
        receiver.on("receiver_open", () => {
            if (this.connection !== connection) return;
            this.replyTo = receiver.source?.address ?? null;
            this.user = this.credentials?.user ?? null;
            this.retry = FIRST_RETRY;
            this.generation += 1;
            if (this.derived !== null) this.sessions.keep(this.derived);
            this.set("open", "");
        });
        receiver.on("message", (context) => this.received(context.message));
        receiver.on("receiver_error", () => {
            this.set("login", `This user may not manage the router: ${text(receiver.error)}`);
        });
    }

    private refused(error: AmqpError | undefined): void {
        if (error?.condition !== "amqp:unauthorized-access") return; // connection_close follows
        this.drop();
        const mechanisms = /server supports (.*)/.exec(text(error))?.[1];
        if (this.credentials !== null && "session" in this.credentials) {
            this.endSession();
        } else if (mechanisms !== undefined && this.credentials !== null) {
            this.set("login", `The router takes none of this page's ways to log in, only ${mechanisms}`);
        } else {
            this.set("login", this.credentials === null ? "" : "The router refused this name and password");
        }
        this.credentials = null;
    }

    private lose(why: string): void {
        if (this.state === "login") return;
        this.drop();
        this.set("lost", why);
        this.timer = setTimeout(() => this.start(), this.retry * (0.75 + Math.random() / 2));
        this.retry = Math.min(this.retry * 2, LAST_RETRY);
    }

    private drop(): void {
        this.connection = null;
        this.replyTo = null;
        this.senders.clear();
        this.queued.clear();
        const waiting = [...this.waiting.values()];
        this.waiting.clear();
        for (const each of waiting) {
            clearTimeout(each.timer);
            each.failed(new RequestError(0, "The connection was lost"));
        }
    }

    private set(state: State, reason: string): void {
        this.state = state;
        this.reason = reason;
        this.changed();
    }

    /** Ask the management of a router. follows: gets further messages that answer the same request. */
    request(
        address: string, properties: Record<string, unknown>, body: unknown = {},
        follows?: (subject: string, body: unknown) => void,
    ): Promise<Answer> {
        const connection = this.connection;
        if (connection === null || this.replyTo === null) {
            return Promise.reject(new RequestError(0, "There is no connection to the router"));
        }
        const id = String(this.next++);
        return new Promise((done, failed) => {
            const timer = setTimeout(() => {
                this.waiting.delete(id);
                this.unsend(address, id);
                failed(new RequestError(0, "There was no answer"));
            }, TIMEOUT);
            this.waiting.set(id, { done, failed, timer, follows });
            this.send(connection, address, {
                reply_to: this.replyTo!, correlation_id: id, application_properties: properties, body,
            });
        });
    }

    /** Expect no more messages that answer a request. */
    forget(follows: (subject: string, body: unknown) => void): void {
        for (const [id, each] of this.waiting) if (each.follows === follows) this.waiting.delete(id);
    }

    private send(connection: Connection, address: string, message: Message): void {
        const sender = this.senders.get(address) ?? this.attach(connection, address);
        if (sender.sendable()) sender.send(message);
        else this.queued.set(address, [...(this.queued.get(address) ?? []), message]);
    }

    private unsend(address: string, id: string): void {
        const left = (this.queued.get(address) ?? []).filter((each) => each.correlation_id !== id);
        this.queued.set(address, left);
    }

    private attach(connection: Connection, address: string): Sender {
        const sender = connection.open_sender({ target: { address }, snd_settle_mode: 1 });
        this.senders.set(address, sender);
        sender.on("sendable", () => {
            const queue = this.queued.get(address) ?? [];
            while (queue.length && sender.sendable()) sender.send(queue.shift()!);
        });
        const ended = (): void => {
            if (this.senders.get(address) !== sender) return;
            this.senders.delete(address);
            const error = new RequestError(403, text(sender.error) || `No link to ${address}`);
            for (const message of this.queued.get(address) ?? []) {
                const waiting = this.waiting.get(String(message.correlation_id));
                this.waiting.delete(String(message.correlation_id));
                clearTimeout(waiting?.timer);
                waiting?.failed(error);
            }
            this.queued.delete(address);
        };
        sender.on("sender_error", ended);
        sender.on("sender_close", ended);
        return sender;
    }

    private received(message: Message | undefined): void {
        const id = String(message?.correlation_id);
        const waiting = this.waiting.get(id);
        if (message === undefined || waiting === undefined) return;
        if (message.subject && waiting.follows !== undefined) {
            waiting.follows(message.subject, message.body);
            return;
        }
        clearTimeout(waiting.timer);
        if (waiting.follows === undefined) this.waiting.delete(id);
        const status = Number(message.application_properties?.["statusCode"]);
        const description = String(message.application_properties?.["statusDescription"] ?? "");
        if (status >= 200 && status < 300) {
            waiting.done({ status, description, body: message.body });
        } else {
            this.waiting.delete(id);
            waiting.failed(new RequestError(status, description || `status ${status}`));
        }
    }
}

function text(error: AmqpError | undefined): string {
    return error?.description ?? error?.message ?? error?.condition ?? "";
}
