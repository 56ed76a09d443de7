// What the console uses of rhea. Its own types need those of Node.

export interface AmqpError { condition?: string; description?: string; message?: string }

export interface Message {
    to?: string;
    reply_to?: string;
    subject?: string;
    correlation_id?: unknown;
    application_properties?: Record<string, unknown>;
    body?: unknown;
}

export interface Context { message?: Message; error?: AmqpError; connection: Connection; receiver?: Receiver }

interface Emitter { on(event: string, call: (context: Context) => void): this }

export interface Sender extends Emitter {
    error?: AmqpError;
    sendable(): boolean;
    send(message: Message): unknown;
    close(): void;
}

export interface Receiver extends Emitter {
    error?: AmqpError;
    source?: { address?: string };
}

export interface Connection extends Emitter {
    container_id: string;
    open_sender(options: unknown): Sender;
    open_receiver(options: unknown): Receiver;
    close(): void;
}

export interface Mechanism {
    start(done: (error: unknown, response?: unknown) => void): void;
    step(challenge: unknown, done: (error: unknown, response?: unknown) => void): void;
}

interface Rhea {
    connect(options: unknown): Connection;
    websocket_connect(socket: typeof WebSocket): (url: string, protocols: string[]) => unknown;
    types: {
        wrap_string(value: string): unknown;
        wrap_long(value: number): unknown;
        wrap_map(value: object): unknown;
        wrap_list(value: unknown[]): unknown;
    };
}

declare const rhea: Rhea;
export default rhea;
