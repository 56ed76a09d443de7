// Answers of management, and how requests fail.

export interface Answer { status: number; description: string; body: unknown }

/** A request that failed: the router's status and what it says. Status 0: there was no answer. */
export class RequestError extends Error {
    readonly status: number;

    constructor(status: number, text: string) {
        super(text);
        this.status = status;
    }
}
