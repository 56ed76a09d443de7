// Places for the nodes of a graph. A node keeps its place when others come and go: only newcomers are placed. The same
// network gets the same picture. Nodes of the core (routers, and brokers of several routers) attract and repel each
// other; all other nodes sit on rings around the node that they belong to.
import type { Graph, Kind, Node } from "./graph.ts";

export interface Place { x: number; y: number }

const APART = 150; // px between neighbours without others around them, at least
const AIR = 46; // px between the rings of two neighbours: room for names and rates
const ROUNDS = 220;
const PUSHES = 60; // rounds in which overlapping nodes are pushed apart
const FEW = 0.3; // of all nodes: with more newcomers everything is laid out anew

/** Rings around a node: radius of the first in px, distance of the next, and places on the first. */
const RINGS: Record<Kind, { first: number; next: number; places: number }> = {
    router: { first: 66, next: 46, places: 8 },
    edge: { first: 46, next: 34, places: 6 },
    broker: { first: 46, next: 34, places: 6 },
    edges: { first: 104, next: 104, places: 8 },
    crowd: { first: 54, next: 40, places: 7 },
    clients: { first: 40, next: 34, places: 6 },
};

/** Radius of a node in px, at scale 1. */
export const RADIUS: Record<Kind, number> = { router: 21, edge: 15, broker: 17, clients: 8, edges: 17, crowd: 12 };

interface Ring { at: string; slots: Map<string, number> }

export class Layout {
    /** Places of the core by forces, and where the reader moved them; without the room that open groups need. */
    readonly places = new Map<string, Place>();
    private pushed = new Map<string, Place>();
    private readonly rings = new Map<string, Ring>(); // by the node in the middle
    private nodes = new Map<string, Node>();
    /** Nodes without neighbours when they were placed: the first answers do not name all. */
    private readonly loose = new Set<string>();
    private moving: string[] = [];
    private neighbours = new Map<string, string[]>();
    private reach = new Map<string, number>(); // px around a node of the core that its rings take, all folded
    private round = ROUNDS;
    private readonly free = new Map<string, number>(); // directions, until a node moves
    private readonly found = new Map<string, Place>(); // places of nodes on rings, until a node moves
    private moved = ""; // the node that the reader moved last: others make room for it

    constructor(kept: Record<string, [number, number]> = {}) {
        for (const [id, [x, y]] of Object.entries(kept)) {
            if (Number.isFinite(x) && Number.isFinite(y)) this.places.set(id, { x, y });
        }
    }

    /** Take the graph as it is now. */
    take(graph: Graph): void {
        this.nodes = graph.nodes;
        const core = [...graph.nodes.values()].filter((node) => !this.isOnRing(node)).sort(byId);
        this.neighbours = new Map(core.map((node) => [node.id, []]));
        for (const { from, to } of graph.edges.values()) {
            if (!this.neighbours.has(from) || !this.neighbours.has(to)) continue;
            this.neighbours.get(from)!.push(to);
            this.neighbours.get(to)!.push(from);
        }
        this.fillRings();
        // A node that had a place until its router was known keeps none.
        for (const id of [...this.loose]) {
            const node = graph.nodes.get(id);
            if (node === undefined || !this.isOnRing(node)) continue;
            this.loose.delete(id);
            this.places.delete(id);
        }
        this.reach = new Map(core.map((node) => [node.id, this.reachOf(node, false)]));
        const fresh = core.filter((node) => !this.places.has(node.id) || (this.loose.has(node.id) && this.degree(node.id) > 0));
        for (const node of fresh) {
            if (this.degree(node.id) > 0) this.loose.delete(node.id);
            else this.loose.add(node.id);
        }
        const anew = fresh.length === core.length || fresh.length > Math.max(2, core.length * FEW);
        if (anew) this.spread(core);
        else for (const node of fresh) this.join(node);
        if (fresh.length) {
            this.moving = (anew ? core : fresh).map((node) => node.id);
            this.round = 0;
        }
        this.push();
    }

    private isOnRing(node: Node): boolean {
        return node.at !== null && this.nodes.has(node.at);
    }

    /** Place all on a spiral, in an order in which neighbours are near: breadth first. */
    private spread(core: Node[]): void {
        const left = new Set(core.map((node) => node.id));
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

    /** Place a newcomer beside its neighbours. */
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
        const going = this.round < ROUNDS;
        this.push(going ? 0 : PUSHES);
        return going;
    }

    /** One round: neighbours attract, all others repel; no node moves further than `most`. */
    private step(most: number): void {
        const ids = [...this.neighbours.keys()];
        const index = new Map(ids.map((id, at) => [id, at]));
        const xs = Float64Array.from(ids, (id) => this.places.get(id)!.x);
        const ys = Float64Array.from(ids, (id) => this.places.get(id)!.y);
        const reach = Float64Array.from(ids, (id) => this.reach.get(id)!);
        const apart = (one: number, other: number): number => Math.max(APART, reach[one]! + reach[other]! + AIR);
        for (const id of this.moving) {
            const at = index.get(id);
            if (at === undefined) continue;
            let [x, y] = [-xs[at]! * 0.02, -ys[at]! * 0.02];
            for (let other = 0; other < ids.length; other += 1) {
                if (other === at) continue;
                let dx = xs[at]! - xs[other]!;
                let dy = ys[at]! - ys[other]!;
                let square = dx * dx + dy * dy;
                if (square < 1) [dx, dy, square] = [at < other ? 1 : -1, 0.5, 1];
                const wanted = apart(at, other);
                const strength = wanted * wanted / square;
                if (strength < 1 / 36) continue;
                x += dx * strength;
                y += dy * strength;
            }
            for (const neighbour of this.neighbours.get(id)!) {
                const other = index.get(neighbour)!;
                const [dx, dy] = [xs[at]! - xs[other]!, ys[at]! - ys[other]!];
                const strength = Math.sqrt(dx * dx + dy * dy) / apart(at, other);
                x -= dx * strength;
                y -= dy * strength;
            }
            const length = Math.sqrt(x * x + y * y) || 1;
            const step = Math.min(length, most) / length;
            this.places.set(id, { x: xs[at]! + x * step, y: ys[at]! + y * step });
        }
    }

    /** Push nodes apart whose rings overlap. With all groups folded again, each is back where it was. */
    private push(rounds = PUSHES): void {
        this.free.clear();
        this.found.clear();
        const ids = [...this.neighbours.keys()];
        this.pushed = new Map(ids.map((id) => [id, { ...this.places.get(id)! }]));
        const reach = ids.map((id) => this.reachOf(this.nodes.get(id)!, true));
        const places = ids.map((id) => this.pushed.get(id)!);
        for (let round = 0; round < rounds; round += 1) {
            let overlap = false;
            for (let one = 0; one < ids.length; one += 1) {
                for (let other = one + 1; other < ids.length; other += 1) {
                    const needed = reach[one]! + reach[other]! + AIR / 2;
                    let [dx, dy] = [places[other]!.x - places[one]!.x, places[other]!.y - places[one]!.y];
                    if (Math.abs(dx) >= needed || Math.abs(dy) >= needed) continue;
                    if (dx === 0 && dy === 0) [dx, dy] = [1, 0.5];
                    const distance = Math.sqrt(dx * dx + dy * dy);
                    if (distance >= needed - 0.5) continue;
                    overlap = true;
                    const by = (needed - distance) / distance;
                    const mine = ids[one] === this.moved ? 0 : ids[other] === this.moved ? 1 : 0.5;
                    places[one]!.x -= dx * by * mine;
                    places[one]!.y -= dy * by * mine;
                    places[other]!.x += dx * by * (1 - mine);
                    places[other]!.y += dy * by * (1 - mine);
                }
            }
            if (!overlap) break;
        }
    }

    /** Give each node on a ring a slot, which it keeps as long as it is there. */
    private fillRings(): void {
        const members = new Map<string, Node[]>();
        for (const node of [...this.nodes.values()].sort(byId)) {
            if (this.isOnRing(node)) members.set(node.at!, [...(members.get(node.at!) ?? []), node]);
        }
        for (const id of this.rings.keys()) if (!members.has(id)) this.rings.delete(id);
        for (const [at, nodes] of members) {
            let ring = this.rings.get(at);
            if (ring === undefined) this.rings.set(at, ring = { at, slots: new Map() });
            const ids = new Set(nodes.map((node) => node.id));
            for (const id of ring.slots.keys()) if (!ids.has(id)) ring.slots.delete(id);
            const taken = new Set(ring.slots.values());
            let slot = 0;
            for (const { id } of nodes) {
                if (ring.slots.has(id)) continue;
                while (taken.has(slot)) slot += 1;
                taken.add(slot);
                ring.slots.set(id, slot);
            }
        }
    }

    /** px from the middle of a node to the end of what is around it. opened: with the members of open groups. */
    private reachOf(node: Node, opened: boolean): number {
        const ring = node.members.length && !(opened && node.open) ? undefined : this.rings.get(node.id);
        let most = RADIUS[node.kind];
        for (const [id, slot] of ring?.slots ?? []) {
            const member = this.nodes.get(id)!;
            const { radius } = spot(node.kind, slot);
            most = Math.max(most, (opened ? this.distance(member, radius) : radius) + this.reachOf(member, opened));
        }
        return most;
    }

    /** px between a node on a ring and its middle: an open group needs more than its ring gives. */
    private distance(node: Node, radius: number): number {
        return node.open ? this.reachOf(node, true) + radius + 20 : radius;
    }

    /** Where a node is. */
    place(node: Node): Place {
        if (!this.isOnRing(node)) return this.pushed.get(node.id) ?? this.places.get(node.id) ?? { x: 0, y: 0 };
        let place = this.found.get(node.id);
        if (place === undefined) {
            const middle = this.nodes.get(node.at!)!;
            const centre = this.place(middle);
            const { radius, angle } = spot(middle.kind, this.rings.get(middle.id)?.slots.get(node.id) ?? 0);
            const direction = this.freeDirection(middle) + angle;
            const distance = this.distance(node, radius);
            place = { x: centre.x + distance * Math.cos(direction), y: centre.y + distance * Math.sin(direction) };
            this.found.set(node.id, place);
        }
        return place;
    }

    /** Return the angle at which a ring begins: away from the middle's own middle, else in the widest gap between its lines. */
    private freeDirection(node: Node): number {
        let found = this.free.get(node.id);
        if (found !== undefined) return found;
        const at = this.place(node);
        found = hash(node.id) % 7;
        if (this.isOnRing(node)) {
            const centre = this.place(this.nodes.get(node.at!)!);
            found = Math.atan2(at.y - centre.y, at.x - centre.x);
        } else {
            const lines = (this.neighbours.get(node.id) ?? []).map((id) => this.place(this.nodes.get(id)!))
                .map((place) => Math.atan2(place.y - at.y, place.x - at.x)).sort((one, other) => one - other);
            let widest = 0;
            for (const [index, line] of lines.entries()) {
                const gap = index + 1 < lines.length ? lines[index + 1]! - line : lines[0]! + 2 * Math.PI - line;
                if (gap > widest + 1e-6) [widest, found] = [gap, line + gap / 2];
            }
        }
        this.free.set(node.id, found);
        return found;
    }

    /** Whether the reader can move a node: those on rings follow their middle. */
    isMovable(node: Node): boolean {
        return !this.isOnRing(node);
    }

    move(id: string, place: Place): void {
        this.places.set(id, place);
        this.moved = id;
        this.loose.delete(id);
        this.moving = this.moving.filter((each) => each !== id);
        this.push();
    }

    kept(): Record<string, [number, number]> {
        return Object.fromEntries([...this.places].filter(([id]) => !this.loose.has(id)).map(([id, { x, y }]) => [id, [Math.round(x), Math.round(y)]]));
    }
}

/** Radius and angle of a slot, to both sides of the ring's direction in turn, so that lines are covered last. */
function spot(kind: Kind, slot: number): { radius: number; angle: number } {
    const { first, next, places } = RINGS[kind];
    let [ring, left] = [0, slot];
    const room = (index: number): number => Math.max(places, Math.floor(places * (1 + index * next / first)));
    while (left >= room(ring)) {
        left -= room(ring);
        ring += 1;
    }
    const turn = Math.ceil(left / 2) * (left % 2 ? 1 : -1);
    return { radius: first + ring * next, angle: turn / room(ring) * 2 * Math.PI + ring * 0.39 };
}

const byId = (one: Node, other: Node): number => (one.id < other.id ? -1 : 1);

export function hash(text: string): number {
    let found = 2166136261;
    for (let index = 0; index < text.length; index += 1) found = Math.imul(found ^ text.charCodeAt(index), 16777619);
    return found >>> 0;
}
