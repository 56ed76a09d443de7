// What rhea takes for granted, because Node has it.
export { Buffer } from "buffer/";

export const process = {
    env: {} as Record<string, string>,
    version: "v20.0.0",
    nextTick: (call: (...given: unknown[]) => void, ...given: unknown[]): void => queueMicrotask(() => call(...given)),
};
