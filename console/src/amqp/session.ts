// A login that outlives a reload of the page: SCRAM's keys in the tab's session storage, for some hours.
//
// The keys stand for the password at this router only, because they are made with its salt, and until the password is
// changed. The browser drops them with the tab; the page drops them when the reader logs out, when their time is up, and
// when the router refuses them. Logins by PLAIN are not kept: they would need the password itself.

export interface Keys { clientKey: string; serverKey: string }

/** hash, salt, rounds: of the challenge for which the keys were made. until: ms since 1970. */
export interface Session extends Keys { user: string; hash: string; salt: string; rounds: number; until: number }

/** Where the session is kept: sessionStorage, which a browser may refuse. */
export interface Store { getItem(key: string): string | null; setItem(key: string, value: string): void; removeItem(key: string): void }

const KEY = "sluice.session";
export const SESSION_MS = 8 * 3_600_000;

export class Sessions {
    private readonly store: () => Store;
    private readonly now: () => number;

    constructor(store: () => Store = () => sessionStorage, now: () => number = () => Date.now()) {
        this.store = store;
        this.now = now;
    }

    keep(session: Omit<Session, "until">): void {
        // A page that is loaded again goes on with the session that began with the password.
        const until = this.read()?.clientKey === session.clientKey ? this.read()!.until : this.now() + SESSION_MS;
        this.attempt(() => this.store().setItem(KEY, JSON.stringify({ ...session, until })));
    }

    /** The session of this tab; null: there is none, or its time is up. */
    read(): Session | null {
        const kept = this.attempt(() => JSON.parse(this.store().getItem(KEY) ?? "null") as Session | null);
        if (kept === null || kept === undefined) return null;
        if (typeof kept.until === "number" && kept.until > this.now() && kept.until <= this.now() + SESSION_MS) return kept;
        this.drop();
        return null;
    }

    drop(): void {
        this.attempt(() => this.store().removeItem(KEY));
    }

    /** A browser may be told to keep nothing; then the session ends with the page. */
    private attempt<Result>(call: () => Result): Result | undefined {
        try {
            return call();
        } catch {
            return undefined;
        }
    }
}
