// Places for the nodes of a graph. A node keeps its place when others come and go: only newcomers are placed. The same
// network gets the same picture.
import type { Graph, Node } from "./graph.ts";

export interface Place { x: number; y: number }

const APART = 150; // between neighbours
const RING = 62; // of the innermost ring of clients around a router
const ROUNDS = 220;
const FEW = 0.3; // of all nodes: with more newcomers everything is laid out anew

export class Layout {
    readonly places = new Map<string, Place>();
    private readonly slots = new Map<string, Map<number, string>>(); // of clients, by router
    /** Those that had no neighbour when they were placed: the first answers do not name all. */
    private readonly loose = new Set<string>();
    private moving: string[] = [];
    private neighbours = new Map<string, string[]>();
    private round = ROUNDS;
    private readonly free = new Map<string, number>(); // directions, until somebody moves

    constructor(kept: Record<string, [number, number]> = {}) {
        for (const [id, [x, y]] of Object.entries(kept)) {
            if (Number.isFinite(x) && Number.isFinite(y)) this.places.set(id, { x, y });
        }
    }

    /** Take the graph as it is now. */
    take(graph: Graph): void {
        this.free.clear();
        const main = [...graph.nodes.values()].filter((node) => node.kind !== "clients").sort(byId);
        this.neighbours = new Map(main.map((node) => [node.id, []]));
        for (const { from, to } of graph.edges.values()) {
            if (!this.neighbours.has(from) || !this.neighbours.has(to)) continue;
            this.neighbours.get(from)!.push(to);
            this.neighbours.get(to)!.push(from);
        }
        const fresh = main.filter((node) => !this.places.has(node.id) || (this.loose.has(node.id) && this.degree(node.id) > 0));
        for (const node of fresh) {
            if (this.degree(node.id) > 0) this.loose.delete(node.id);
            else this.loose.add(node.id);
        }
        if (fresh.length === main.length || fresh.length > Math.max(2, main.length * FEW)) this.spread(main);
        else for (const node of fresh) this.join(node);
        if (fresh.length) {
            this.moving = (fresh.length > Math.max(2, main.length * FEW) ? main : fresh).map((node) => node.id);
            this.round = 0;
        }
        this.placeClients(graph);
    }

    /** Everybody on a circle, in an order in which neighbours are near: breadth first. */
    private spread(main: Node[]): void {
        const left = new Set(main.map((node) => node.id));
        const order: string[] = [];
        while (left.size) {
            const first = [...left].sort((one, other) => this.degree(other) - this.degree(one) || (one < other ? -1 : 1))[0]!;
            const queue = [first];
            left.delete(first);
            for (let id = queue.shift(); id !== undefined; id = queue.shift()) {
                order.push(id);
                for (const other of [...this.neighbours.get(id)!].sort()) if (left.delete(other)) queue.push(other);
            }
        }
        const turn = Math.PI * (3 - Math.sqrt(5)); // the angle of sunflowers: no two on a line
        order.forEach((id, index) => {
            const radius = APART * 0.9 * Math.sqrt(index);
            this.places.set(id, { x: radius * Math.cos(index * turn), y: radius * Math.sin(index * turn) });
        });
    }

    private degree(id: string): number {
        return this.neighbours.get(id)?.length ?? 0;
    }

    /** A newcomer begins beside its neighbours. */
    private join(node: Node): void {
        const near = (this.neighbours.get(node.id) ?? []).map((id) => this.places.get(id)).filter((place) => place !== undefined);
        const angle = hash(node.id) / 4294967296 * 2 * Math.PI;
        const [x, y] = near.length
            ? [near.reduce((sum, one) => sum + one.x, 0) / near.length, near.reduce((sum, one) => sum + one.y, 0) / near.length]
            : [0, 0];
        this.places.set(node.id, { x: x + APART * Math.cos(angle), y: y + APART * Math.sin(angle) });
    }

    /** Work on the places for some time; false: they are final. */
    improve(milliseconds: number, now: () => number = () => performance.now()): boolean {
        const until = now() + milliseconds;
        while (this.round < ROUNDS) {
            this.step(APART * 0.6 * (1 - this.round / ROUNDS) ** 1.5);
            this.round += 1;
            if (now() > until) break;
        }
        return this.round < ROUNDS;
    }

    /** One round: neighbours attract, all others repel; nobody moves further than `most`. */
    private step(most: number): void {
        this.free.clear();
        const all = [...this.neighbours.keys()];
        const moved = this.moving.map((id) => {
            const at = this.places.get(id)!;
            let [x, y] = [-at.x * 0.02, -at.y * 0.02];
            for (const other of all) {
                if (other === id) continue;
                const there = this.places.get(other)!;
                let [dx, dy] = [at.x - there.x, at.y - there.y];
                let square = dx * dx + dy * dy;
                if (square < 1) [dx, dy, square] = [id < other ? 1 : -1, 0.5, 1];
                if (square > 36 * APART * APART) continue;
                x += dx * APART * APART / square;
                y += dy * APART * APART / square;
            }
            for (const other of this.neighbours.get(id)!) {
                const there = this.places.get(other)!;
                const [dx, dy] = [at.x - there.x, at.y - there.y];
                const distance = Math.sqrt(dx * dx + dy * dy);
                x -= dx * distance / APART;
                y -= dy * distance / APART;
            }
            const length = Math.sqrt(x * x + y * y) || 1;
            const step = Math.min(length, most);
            return { id, x: at.x + x / length * step, y: at.y + y / length * step };
        });
        for (const { id, x, y } of moved) this.places.set(id, { x, y });
    }

    /** Clients sit in rings around their router, each in a slot that it keeps. */
    private placeClients(graph: Graph): void {
        const groups = [...graph.nodes.values()].filter((node) => node.kind === "clients").sort(byId);
        const there = new Set(groups.map((node) => node.id));
        for (const slots of this.slots.values()) {
            for (const [slot, id] of slots) if (!there.has(id)) slots.delete(slot);
        }
        for (const node of groups) {
            let slots = this.slots.get(node.at!);
            if (slots === undefined) this.slots.set(node.at!, slots = new Map());
            if ([...slots.values()].includes(node.id)) continue;
            let slot = 0;
            while (slots.has(slot)) slot += 1;
            slots.set(slot, node.id);
        }
    }

    /** Where a node is. */
    place(node: Node): Place {
        if (node.kind !== "clients") return this.places.get(node.id) ?? { x: 0, y: 0 };
        const centre = this.places.get(node.at!) ?? { x: 0, y: 0 };
        const slots = this.slots.get(node.at!);
        let slot = 0;
        for (const [key, id] of slots ?? []) if (id === node.id) slot = key;
        const ring = Math.floor(slot / 8);
        // To both sides of the free direction in turn, so that lines to neighbours are covered last.
        const turn = Math.ceil(slot % 8 / 2) * (slot % 2 ? 1 : -1);
        const angle = this.freeDirection(node.at!) + turn / 8 * 2 * Math.PI + ring * 0.39;
        const radius = RING + ring * 34;
        return { x: centre.x + radius * Math.cos(angle), y: centre.y + radius * Math.sin(angle) };
    }

    /** The middle of the widest gap between the lines to a router's neighbours. */
    private freeDirection(id: string): number {
        let found = this.free.get(id);
        if (found !== undefined) return found;
        const at = this.places.get(id) ?? { x: 0, y: 0 };
        const lines = (this.neighbours.get(id) ?? []).map((other) => this.places.get(other)).filter((place) => place !== undefined)
            .map((place) => Math.atan2(place.y - at.y, place.x - at.x)).sort((one, other) => one - other);
        found = hash(id) % 7;
        let widest = 0;
        for (const [index, line] of lines.entries()) {
            const gap = index + 1 < lines.length ? lines[index + 1]! - line : lines[0]! + 2 * Math.PI - line;
            if (gap > widest + 1e-6) [widest, found] = [gap, line + gap / 2];
        }
        this.free.set(id, found);
        return found;
    }

    move(id: string, place: Place): void {
        this.free.clear();
        this.places.set(id, place);
        this.loose.delete(id);
        this.moving = this.moving.filter((each) => each !== id);
    }

    kept(): Record<string, [number, number]> {
        return Object.fromEntries([...this.places].filter(([id]) => !this.loose.has(id)).map(([id, { x, y }]) => [id, [Math.round(x), Math.round(y)]]));
    }
}

const byId = (one: Node, other: Node): number => (one.id < other.id ? -1 : 1);

export function hash(text: string): number {
    let found = 2166136261;
    for (let index = 0; index < text.length; index += 1) found = Math.imul(found ^ text.charCodeAt(index), 16777619);
    return found >>> 0;
}
