// Keys of the address table: a letter for the class, for mobile addresses a phase, then the address.

const CLASSES: Record<string, string> = {
    M: "mobile", R: "router", A: "area", L: "local", T: "topological", H: "edge",
    C: "link route in", E: "link route in", D: "link route out", F: "link route out",
};

export function addressClass(key: string): string {
    return CLASSES[key.charAt(0)] ?? "";
}

export function addressText(key: string): string {
    return key.charAt(0) === "M" ? key.slice(2) : key.slice(1);
}

export function addressPhase(key: string): string {
    return key.charAt(0) === "M" ? key.charAt(1) : "";
}

/** Whether the address is the router's own business, which most people do not look for. */
export function isInternal(key: string): boolean {
    const text = addressText(key);
    return "LTRAH".includes(key.charAt(0)) || text.startsWith("$") || text.startsWith("_") || text.startsWith("qd");
}
