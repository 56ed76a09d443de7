// What the tests use of Node.
declare module "node:test" {
    export function test(name: string, body: () => void | Promise<void>): void;
}
declare module "node:assert/strict" {
    const assert: {
        equal(found: unknown, wanted: unknown, text?: string): void;
        notEqual(found: unknown, unwanted: unknown, text?: string): void;
        deepEqual(found: unknown, wanted: unknown, text?: string): void;
        ok(found: unknown, text?: string): void;
        throws(call: () => unknown, wanted?: RegExp): void;
        rejects(call: Promise<unknown>, wanted?: RegExp): Promise<void>;
    };
    export default assert;
}
declare module "node:process" {
    export function cpuUsage(): { user: number };
}
