// Numbers, times and names as people read them.

export function count(value: number): string {
    return Math.round(value).toLocaleString("en-GB");
}

/** A number of four characters or so. */
export function short(value: number): string {
    const size = Math.abs(value);
    if (size < 10 && size !== Math.round(size)) return value.toFixed(1);
    if (size < 10_000) return count(value);
    for (const [unit, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]] as const) {
        if (size >= unit) return `${(value / unit).toFixed(size / unit < 100 ? 1 : 0)} ${letter}`;
    }
    return count(value);
}

export function rate(value: number | null): string {
    return value === null ? "–" : `${short(value)}/s`;
}

export function octets(value: number): string {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let index = 0;
    while (Math.abs(value) >= 1024 && index < units.length - 1) {
        value /= 1024;
        index += 1;
    }
    return `${value.toFixed(index && value < 100 ? 1 : 0)} ${units[index]}`;
}

export function duration(seconds: number): string {
    const whole = Math.floor(seconds);
    if (whole < 60) return `${whole} s`;
    if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
    if (whole < 86_400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
    return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
}

const two = (value: number): string => String(value).padStart(2, "0");

/** The reader's time of day, with seconds. at: ms since 1970. */
export function clock(at: number): string {
    const time = new Date(at);
    return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
}

/** The reader's date. at: ms since 1970. */
export function day(at: number): string {
    const time = new Date(at);
    return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
}

export function milliseconds(seconds: number): string {
    const ms = seconds * 1e3;
    return ms < 1 ? `${(ms * 1e3).toFixed(0)} µs` : ms < 1000 ? `${ms.toFixed(ms < 10 ? 1 : 0)} ms` : `${(ms / 1e3).toFixed(1)} s`;
}

export function plural(number: number, one: string, many = `${one}s`): string {
    return `${count(number)} ${number === 1 ? one : many}`;
}

/** Lists a few of many. */
export function some(names: string[], most = 3): string {
    const shown = names.slice(0, most).join(", ");
    return names.length > most ? `${shown} and ${names.length - most} more` : shown;
}

/** An attribute's name as a heading: `deliveriesIngress` is "Deliveries ingress". */
export function heading(attribute: string): string {
    const words = attribute.replace(/([a-z])([A-Z0-9])/g, "$1 $2").split(" ").map((word) => (/^[A-Z]{2,}$/.test(word) ? word : word.toLowerCase()));
    const all = words.join(" ");
    return all.charAt(0).toUpperCase() + all.slice(1);
}
