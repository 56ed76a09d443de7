// SCRAM-SHA-256 and -512 (RFC 5802, 7677) for rhea, which has only PLAIN. Browsers give a page the means for it over
// HTTPS and from this machine; elsewhere PLAIN remains.
import type { Mechanism } from "rhea";
import type { Credentials } from "./client.ts";
import type { Keys, Session } from "./session.ts";

declare const Buffer: { from(value: string | Uint8Array): Uint8Array };

const MOST_ITERATIONS = 1_000_000;

const HASHES = { "SHA-256": 32, "SHA-512": 64 } as const; // octets of each

type Hash = keyof typeof HASHES;

/** Return the keys for a challenge; rejects if there are none for its salt. */
export type Derive = (salt: string, rounds: number) => Promise<Keys>;

/** Takes the keys with which the page tries to log in; null: those of the session are for another password. */
export type Derived = (keys: Omit<Session, "until"> | null) => void;

export function scramMechanisms(credentials: Credentials, derived: Derived): Record<string, () => Mechanism> {
    const made: Record<string, () => Mechanism> = {};
    const { user } = credentials;
    if (globalThis.crypto?.subtle !== undefined) {
        for (const hash of Object.keys(HASHES) as Hash[]) {
            if ("session" in credentials && credentials.session.hash !== hash) continue;
            made[`SCRAM-${hash}`] = () => scram(hash, user, async (salt, rounds) => {
                const keys = "session" in credentials ? keysOfSession(credentials.session, salt, rounds) : await keysOf(hash, credentials.password, salt, rounds);
                if (keys === null) {
                    derived(null);
                    throw new Error("the password has been changed");
                }
                derived({ user, hash, salt, rounds, clientKey: keys.clientKey, serverKey: keys.serverKey });
                return keys;
            });
        }
    }
    if ("password" in credentials) made["PLAIN"] = () => plain(user, credentials.password);
    return made;
}

const keysOfSession = (session: Session, salt: string, rounds: number): Keys | null =>
    (session.salt === salt && session.rounds === rounds ? session : null);

function plain(user: string, password: string): Mechanism {
    return {
        start: (done) => done(undefined, Buffer.from(`\0${user}\0${password}`)),
        step: (_, done) => done(undefined, Buffer.from("")),
    };
}

const octets = (text: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(text) as Uint8Array<ArrayBuffer>;
const base64 = (data: Uint8Array): string => btoa(String.fromCharCode(...data));
const unbase64 = (text: string): Uint8Array<ArrayBuffer> => Uint8Array.from(atob(text), (each) => each.charCodeAt(0));

async function hmac(hash: string, key: Uint8Array<ArrayBuffer>, data: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
    const made = await crypto.subtle.importKey("raw", key, { name: "HMAC", hash }, false, ["sign"]);
    return new Uint8Array(await crypto.subtle.sign("HMAC", made, data));
}

/** Make the keys of a password (RFC 5802, 3). */
export async function keysOf(hash: Hash, password: string, salt: string, rounds: number): Promise<Keys> {
    const key = await crypto.subtle.importKey("raw", octets(password.normalize("NFKC")), "PBKDF2", false, ["deriveBits"]);
    const salted = new Uint8Array(await crypto.subtle.deriveBits(
        { name: "PBKDF2", hash, salt: unbase64(salt), iterations: rounds }, key, HASHES[hash] * 8,
    ));
    const [clientKey, serverKey] = [await hmac(hash, salted, octets("Client Key")), await hmac(hash, salted, octets("Server Key"))];
    return { clientKey: base64(clientKey), serverKey: base64(serverKey) };
}

/** What the client proves it with, and what the server has to answer. */
export async function prove(hash: Hash, derive: Derive, clientFirst: string, serverFirst: string, nonce: string): Promise<{ final: string; expected: string }> {
    const fields = new Map(serverFirst.split(",").map((each) => [each.slice(0, 1), each.slice(2)]));
    const [both, salt, rounds] = [fields.get("r") ?? "", fields.get("s") ?? "", Number(fields.get("i"))];
    if (!both.startsWith(nonce) || both === nonce || !(rounds >= 4096 && rounds <= MOST_ITERATIONS)) {
        throw new Error("the router's challenge is not one of SCRAM");
    }
    const keys = await derive(salt, rounds);
    const clientKey = unbase64(keys.clientKey);
    const stored = new Uint8Array(await crypto.subtle.digest(hash, clientKey));
    const bare = `c=${btoa("n,,")},r=${both}`;
    const all = octets(`${clientFirst},${serverFirst},${bare}`);
    const signature = await hmac(hash, stored, all);
    const proof = clientKey.map((each, index) => each ^ signature[index]!);
    const server = await hmac(hash, unbase64(keys.serverKey), all);
    return { final: `${bare},p=${base64(proof)}`, expected: `v=${base64(server)}` };
}

function scram(hash: Hash, user: string, derive: Derive): Mechanism {
    const nonce = base64(crypto.getRandomValues(new Uint8Array(18)));
    const first = `n=${user.replace(/=/g, "=3D").replace(/,/g, "=2C")},r=${nonce}`;
    let expected: string | null = null;
    return {
        start: (done) => done(undefined, Buffer.from(`n,,${first}`)),
        step: (challenge, done) => {
            const said = new TextDecoder().decode(challenge as Uint8Array);
            if (expected !== null) {
                if (said === expected) done(undefined, Buffer.from(""));
                else done("the router's signature is wrong, so the router does not know the password");
                return;
            }
            prove(hash, derive, first, said, nonce).then((made) => {
                expected = made.expected;
                done(undefined, Buffer.from(made.final));
            }, (error: unknown) => done(String(error)));
        },
    };
}
