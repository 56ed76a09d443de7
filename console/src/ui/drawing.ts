// The graph on a canvas: draws it, and turns the pointer and keys into looking around, choosing and moving.
import { short } from "../data/format.ts";
import { emptyGraph } from "../data/graph.ts";
import type { Edge, Graph, Kind, Node } from "../data/graph.ts";
import { along, nameNodes, settle, Room } from "../data/labels.ts";
import type { Named } from "../data/labels.ts";
import { RADIUS } from "../data/layout.ts";
import type { Layout, Place } from "../data/layout.ts";
import { cutMiddle, labelsOf } from "../data/names.ts";
import type { Path } from "../data/path.ts";
import { visible } from "./visible.ts";

export interface Chosen { node?: string; edge?: string }

interface Colours { back: string; face: string; ink: string; dim: string; line: string; accent: string; bad: string; warn: string; tint: string; good: string }

const MOST_LETTERS = 24; // of a name, and of its shorter form
const FEW_LETTERS = 12;
const isDetail = (kind: Kind): boolean => kind === "clients" || kind === "crowd";
const DETAIL = 0.42; // scale from which clients are drawn one by one
const LABELS = 0.55; // from which lines have labels, and each router its name, whatever it covers
const NAME = "600 12px system-ui, sans-serif";
const RATE = "11.5px system-ui, sans-serif";
const BUTTONS = 44; // px at the lower edge that buttons and legend cover
const MARGIN = 4; // px between names and the edge
const MOST_WIDTHS = 5_000; // of texts that are kept
const SLICE = 6; // ms of a frame for the layout

/** What a line says. */
interface Rate { id: string; text: string; from: Place; to: Place; faded: boolean }

export class Drawing {
    graph: Graph = emptyGraph();
    path: Path | null = null;
    chosen: Chosen = {};
    found: Set<string> | null = null;
    /** The data is old: nothing moves, and nothing is coloured. */
    stale = false;
    onChoose: (chosen: Chosen) => void = () => undefined;
    onMoved: () => void = () => undefined;
    /** A group was chosen once more, or for the first time: it opens or folds. */
    onOpen: (id: string) => void = () => undefined;
    /** ms that the last frames took; tests look at it. */
    frames: number[] = [];

    private rates: Rate[] = [];
    private readonly widths = new Map<string, number>();
    private order: Node[] = []; // in which nodes get their names
    private labels = new Map<string, string>();
    private readonly canvas: HTMLCanvasElement;
    private readonly layout: Layout;
    private colours: Colours;
    private scale = 1;
    private x = 0;
    private y = 0;
    private frame = 0;
    private improving = false;
    private fitted = false;
    private touched = false; // the reader has looked around: the view stays
    private hover: Chosen = {};
    private drag: { node: string | null; x: number; y: number; moved: boolean } | null = null;
    private readonly still = matchMedia("(prefers-reduced-motion: reduce)");
    private readonly ends: (() => void)[] = [];

    constructor(canvas: HTMLCanvasElement, layout: Layout) {
        this.canvas = canvas;
        this.layout = layout;
        this.colours = this.readColours();
        const on = <Name extends keyof HTMLElementEventMap>(name: Name, call: (event: HTMLElementEventMap[Name]) => void, options?: AddEventListenerOptions): void => {
            canvas.addEventListener(name, call as EventListener, options);
            this.ends.push(() => canvas.removeEventListener(name, call as EventListener));
        };
        on("pointerdown", (event) => this.down(event));
        on("pointermove", (event) => this.moveTo(event));
        on("pointerup", (event) => this.up(event));
        on("pointercancel", () => { this.drag = null; });
        on("wheel", (event) => { event.preventDefault(); this.zoom(Math.exp(-event.deltaY * 0.0015), event.offsetX, event.offsetY); }, { passive: false });
        on("keydown", (event) => this.key(event));
        on("dblclick", () => this.fit());
        const size = new ResizeObserver(() => { if (!this.touched) this.fit(); this.redraw(); });
        size.observe(canvas);
        const theme = new MutationObserver(() => { this.colours = this.readColours(); this.redraw(); });
        theme.observe(document.documentElement, { attributes: true });
        this.ends.push(() => size.disconnect(), () => theme.disconnect());
    }

    stop(): void {
        cancelAnimationFrame(this.frame);
        for (const end of this.ends) end();
    }

    /** names: of all routers and brokers, also of those that are folded: labels keep what differs among them. */
    take(graph: Graph, names: string[]): void {
        this.graph = graph;
        const ranks: Record<Kind, number> = { router: 0, broker: 1, edges: 2, edge: 3, crowd: 4, clients: 5 };
        this.order = [...graph.nodes.values()].sort((one, other) => ranks[one.kind] - ranks[other.kind] || (one.id < other.id ? -1 : 1));
        this.labels = new Map([
            ...labelsOf(names, MOST_LETTERS),
            ...this.order.filter((node) => node.kind === "clients").map(({ label }) => [label, cutMiddle(label, MOST_LETTERS)] as const),
        ]);
        this.layout.take(graph);
        this.improving = true;
        this.redraw();
    }

    private readColours(): Colours {
        const style = getComputedStyle(document.documentElement);
        const of = (name: string): string => style.getPropertyValue(`--${name}`).trim();
        return { back: of("back"), face: of("face"), ink: of("ink"), dim: of("dim"), line: of("line"), accent: of("accent"), bad: of("bad"), warn: of("warn"), tint: of("tint"), good: of("good") };
    }

    redraw(): void {
        if (!this.frame) this.frame = requestAnimationFrame((time) => this.draw(time));
    }

    fit(): void {
        const places = [...this.graph.nodes.values()].map((node) => this.layout.place(node));
        if (!places.length || !this.canvas.clientWidth) return;
        const [left, right] = [Math.min(...places.map((each) => each.x)), Math.max(...places.map((each) => each.x))];
        const [top, bottom] = [Math.min(...places.map((each) => each.y)), Math.max(...places.map((each) => each.y))];
        const { clientWidth: width, clientHeight } = this.canvas;
        const height = clientHeight - BUTTONS;
        this.scale = Math.min(1.4, width / (right - left + 190), height / (bottom - top + 120));
        this.x = width / 2 - (left + right) / 2 * this.scale;
        this.y = height / 2 - (top + bottom) / 2 * this.scale;
        this.touched = false;
        this.redraw();
    }

    zoom(by: number, atX = this.canvas.clientWidth / 2, atY = this.canvas.clientHeight / 2): void {
        const scale = Math.min(4, Math.max(0.03, this.scale * by));
        this.x = atX - (atX - this.x) * scale / this.scale;
        this.y = atY - (atY - this.y) * scale / this.scale;
        this.scale = scale;
        this.touched = true;
        this.redraw();
    }

    /** Bring a node into the middle. */
    show(id: string): void {
        const node = this.graph.nodes.get(id);
        if (node === undefined) return;
        const place = this.layout.place(node);
        this.scale = Math.max(this.scale, 0.9);
        this.x = this.canvas.clientWidth / 2 - place.x * this.scale;
        this.y = this.canvas.clientHeight / 2 - place.y * this.scale;
        this.touched = true;
        this.redraw();
    }

    // Drawing

    private draw(time: number): void {
        this.frame = 0;
        const began = performance.now();
        if (this.improving) {
            this.improving = this.layout.improve(SLICE);
            if (!this.touched || !this.fitted) this.fit();
            if (!this.improving) {
                this.fitted = true;
                this.onMoved();
            }
        }
        const { canvas } = this;
        const ratio = devicePixelRatio || 1;
        const [width, height] = [canvas.clientWidth, canvas.clientHeight];
        if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
            canvas.width = Math.round(width * ratio);
            canvas.height = Math.round(height * ratio);
        }
        const pen = canvas.getContext("2d")!;
        pen.setTransform(ratio, 0, 0, ratio, 0, 0);
        pen.clearRect(0, 0, width, height);
        const at = new Map<string, Place>();
        for (const node of this.graph.nodes.values()) {
            const place = this.layout.place(node);
            at.set(node.id, { x: place.x * this.scale + this.x, y: place.y * this.scale + this.y });
        }
        const seen = (place: Place): boolean => place.x > -80 && place.y > -80 && place.x < width + 80 && place.y < height + 80;
        let busy = false;
        for (const edge of this.graph.edges.values()) {
            const [from, to] = [at.get(edge.from), at.get(edge.to)];
            if (from === undefined || to === undefined || !(seen(from) || seen(to))) continue;
            const client = [edge.from, edge.to].some((id) => isDetail(this.graph.nodes.get(id)!.kind));
            if (client && this.scale < DETAIL) continue;
            busy = this.line(pen, edge, from, to, client, time) || busy;
        }
        for (const [id, place] of at) if (!seen(place)) at.delete(id);
        for (const [id, place] of at) {
            const node = this.graph.nodes.get(id)!;
            if (isDetail(node.kind) && this.scale < DETAIL) at.delete(id);
            else this.node(pen, node, place);
        }
        this.texts(pen, at, width);
        this.frames.push(performance.now() - began);
        if (this.frames.length > 120) this.frames.shift();
        if (this.improving || (busy && !this.still.matches && document.visibilityState === "visible")) this.redraw();
    }

    private faded(id: string, edge: boolean): boolean {
        if (this.path !== null) return !(edge ? this.path.edges : this.path.nodes).has(id);
        if (this.found !== null) return edge || !this.found.has(id);
        return false;
    }

    /** Whether something moves on it. */
    private line(pen: CanvasRenderingContext2D, edge: Edge, from: Place, to: Place, client: boolean, time: number): boolean {
        const { colours } = this;
        const rate = this.stale ? 0 : edge.there + edge.back;
        const on = this.path?.edges.has(edge.id) ?? false;
        const chosen = this.chosen.edge === edge.id || this.hover.edge === edge.id;
        pen.globalAlpha = this.faded(edge.id, true) ? 0.3 : rate > 0 || on || chosen ? 1 : 0.6;
        pen.lineWidth = Math.max(client ? 1 : 1.6, Math.min(7, 1 + Math.log10(1 + rate))) * (chosen || on ? 1.6 : 1) * Math.min(1, Math.max(0.4, this.scale));
        pen.strokeStyle = on || chosen ? colours.accent : colours.dim;
        pen.beginPath();
        pen.setLineDash(edge.standby ? [3, 4] : []);
        pen.moveTo(from.x, from.y);
        pen.lineTo(to.x, to.y);
        pen.stroke();
        pen.setLineDash([]);
        const moves = rate > 0 && this.scale > 0.25;
        if (moves) this.dots(pen, edge, from, to, time);
        if (!client && this.scale > LABELS && (edge.cost !== null || rate > 0)) {
            const text = [rate > 0 ? `${short(edge.there)} → ${short(edge.back)} ←` : "", edge.cost !== null && edge.cost !== 1 ? `cost ${edge.cost}` : ""];
            const arrows = from.x <= to.x ? text[0]! : rate > 0 ? `${short(edge.back)} → ${short(edge.there)} ←` : "";
            const words = [arrows, text[1]!].filter(Boolean).join("  ");
            if (words) this.rates.push({ id: edge.id, text: words, from, to, faded: this.faded(edge.id, true) });
        }
        pen.globalAlpha = 1;
        return moves;
    }

    private dots(pen: CanvasRenderingContext2D, edge: Edge, from: Place, to: Place, time: number): void {
        const length = Math.hypot(to.x - from.x, to.y - from.y);
        pen.fillStyle = this.colours.accent;
        for (const [rate, sign] of [[edge.there, 1], [edge.back, -1]] as const) {
            if (rate <= 0) continue;
            const apart = Math.max(14, 60 - 12 * Math.log10(1 + rate));
            const first = this.still.matches ? apart / 2 : (time * 0.045) % apart;
            for (let along = first; along < length; along += apart) {
                const share = (sign > 0 ? along : length - along) / length;
                pen.beginPath();
                pen.arc(from.x + (to.x - from.x) * share, from.y + (to.y - from.y) * share, 2.1, 0, 7);
                pen.fill();
            }
        }
    }

    /** Names and rates, last, so that nothing covers them. at: the nodes in sight. */
    private texts(pen: CanvasRenderingContext2D, at: Map<string, Place>, width: number): void {
        const { colours } = this;
        const room = new Room();
        const nodes = this.order.filter((node) => at.has(node.id));
        const named = nodes.map((node): Named => {
            const wanted = this.chosen.node === node.id || this.hover.node === node.id;
            const isNamed = wanted || (isDetail(node.kind) ? this.scale > 0.85 && node.kind === "clients" : this.scale > 0.2);
            const texts = isNamed ? [this.nameOf(node)] : [];
            if (isNamed && !wanted) texts.push(cutMiddle(texts[0]!, FEW_LETTERS));
            const forms = texts.map((text) => ({ text, width: this.width(pen, NAME, text) }));
            return { at: at.get(node.id)!, radius: this.radius(node), forms, wanted };
        });
        const fit = ({ x, y }: Place, half: number, node: Place): Place =>
            ({ x: node.x < 0 || node.x > width ? x : within(x, half + MARGIN, width), y });
        for (const [index, found] of nameNodes(room, named, fit).entries()) {
            if (found === null) continue;
            const node = nodes[index]!;
            pen.globalAlpha = this.faded(node.id, false) ? 0.3 : 1;
            this.text(pen, NAME, found.text, found.place, isDetail(node.kind) || this.stale ? colours.dim : node.silent ? colours.bad : colours.ink);
        }
        for (const { text, from, to, faded } of this.rates.sort((one, other) => (one.id < other.id ? -1 : 1))) {
            const found = settle(room, along(from, to), this.width(pen, RATE, text), false);
            pen.globalAlpha = faded ? 0.3 : 1;
            if (found !== null) this.text(pen, RATE, text, found, colours.dim, this.width(pen, RATE, text));
        }
        pen.globalAlpha = 1;
        this.rates = [];
    }

    private width(pen: CanvasRenderingContext2D, font: string, text: string): number {
        const key = font + text;
        let found = this.widths.get(key);
        if (found === undefined) {
            if (this.widths.size >= MOST_WIDTHS) this.widths.clear();
            pen.font = font;
            found = pen.measureText(text).width;
            this.widths.set(key, found);
        }
        return found;
    }

    /** ground: the width of one to write on, where a line passes below the text. */
    private text(pen: CanvasRenderingContext2D, font: string, text: string, { x, y }: Place, colour: string, ground = 0): void {
        if (ground) {
            pen.fillStyle = this.colours.face;
            pen.fillRect(x - ground / 2 - 3, y - 8, ground + 6, 16);
        }
        pen.font = font;
        pen.textAlign = "center";
        pen.textBaseline = "middle";
        pen.lineWidth = 4;
        pen.strokeStyle = this.colours.face;
        pen.strokeText(text, x, y);
        pen.fillStyle = colour;
        pen.fillText(text, x, y);
    }

    private nameOf(node: Node): string {
        if (node.kind === "edges") return `${node.members.length} edge routers`;
        if (node.kind === "crowd") return `${node.connections.length} clients`;
        return visible(this.labels.get(node.label) ?? node.label);
    }

    private radius(node: Node): number {
        return RADIUS[node.kind] * Math.min(1.25, Math.max(isDetail(node.kind) ? 0.6 : 0.34, this.scale));
    }

    private node(pen: CanvasRenderingContext2D, node: Node, { x, y }: Place): void {
        const { colours } = this;
        const radius = this.radius(node);
        const chosen = this.chosen.node === node.id;
        pen.globalAlpha = this.faded(node.id, false) ? 0.3 : 1;
        const colour = this.stale ? colours.dim : node.silent ? colours.bad : colours.accent;
        pen.fillStyle = node.kind === "router" && !node.gone ? colour : colours.face;
        pen.setLineDash(node.gone ? [5, 4] : []);
        pen.strokeStyle = isDetail(node.kind) ? colours.dim : colour;
        pen.lineWidth = chosen ? 4 : 2;
        if (node.members.length && !node.open) this.shadowOf(pen, node, x, y, radius);
        pen.beginPath();
        if (node.kind === "broker") pen.roundRect(x - radius, y - radius * 0.75, radius * 2, radius * 1.5, 4);
        else if (node.kind === "edge" || node.kind === "edges") pen.roundRect(x - radius, y - radius, radius * 2, radius * 2, radius * 0.45);
        else pen.arc(x, y, radius, 0, 7);
        pen.fill();
        pen.stroke();
        pen.setLineDash([]);
        if (chosen || this.hover.node === node.id) {
            pen.strokeStyle = colours.ink;
            pen.lineWidth = 2;
            pen.beginPath();
            pen.arc(x, y, radius + 5, 0, 7);
            pen.stroke();
        }
        const count = node.kind === "edges" ? node.members.length : node.connections.length;
        if ((count > 1 || node.open) && radius > 6) {
            pen.font = `${Math.max(9, Math.min(12, radius * 1.1))}px system-ui, sans-serif`;
            pen.textAlign = "center";
            pen.textBaseline = "middle";
            pen.fillStyle = colours.ink;
            pen.fillText(node.open ? "−" : count > 999 ? `${Math.round(count / 1000)}k` : String(count), x, y + 0.5);
        }
        pen.globalAlpha = 1;
    }

    /** A second outline behind a node that stands for several. */
    private shadowOf(pen: CanvasRenderingContext2D, node: Node, x: number, y: number, radius: number): void {
        const off = Math.max(2, radius * 0.22);
        pen.beginPath();
        if (node.kind === "edges") pen.roundRect(x - radius + off, y - radius - off, radius * 2, radius * 2, radius * 0.45);
        else pen.arc(x + off, y - off, radius, 0, 7);
        pen.fill();
        pen.stroke();
    }

    // The reader

    private hit(x: number, y: number): Chosen {
        let [nearest, node]: [number, string | undefined] = [14, undefined];
        for (const each of this.graph.nodes.values()) {
            if (isDetail(each.kind) && this.scale < DETAIL) continue;
            const place = this.layout.place(each);
            const distance = Math.hypot(place.x * this.scale + this.x - x, place.y * this.scale + this.y - y) - RADIUS[each.kind] * Math.min(1.2, this.scale) * 0.8;
            if (distance < nearest) [nearest, node] = [distance, each.id];
        }
        if (node !== undefined) return { node };
        for (const each of this.graph.edges.values()) {
            const ends = [each.from, each.to].map((id) => this.graph.nodes.get(id));
            if (ends.some((end) => end === undefined || (isDetail(end.kind) && this.scale < DETAIL))) continue;
            const [from, to] = ends.map((end) => this.layout.place(end!)) as [Place, Place];
            if (distanceTo(from, to, (x - this.x) / this.scale, (y - this.y) / this.scale) * this.scale < 6) return { edge: each.id };
        }
        return {};
    }

    private down(event: PointerEvent): void {
        const { node } = this.hit(event.offsetX, event.offsetY);
        const movable = node !== undefined && this.layout.isMovable(this.graph.nodes.get(node)!);
        this.drag = { node: movable ? node : null, x: event.offsetX, y: event.offsetY, moved: false };
        this.canvas.setPointerCapture(event.pointerId);
    }

    private moveTo(event: PointerEvent): void {
        const { drag } = this;
        if (drag === null) {
            const hover = this.hit(event.offsetX, event.offsetY);
            if (hover.node !== this.hover.node || hover.edge !== this.hover.edge) {
                this.hover = hover;
                this.canvas.style.cursor = hover.node !== undefined || hover.edge !== undefined ? "pointer" : "grab";
                this.redraw();
            }
            return;
        }
        const [dx, dy] = [event.offsetX - drag.x, event.offsetY - drag.y];
        if (!drag.moved && Math.hypot(dx, dy) < 4) return;
        [drag.x, drag.y, drag.moved] = [event.offsetX, event.offsetY, true];
        this.touched = true;
        if (drag.node === null) {
            this.x += dx;
            this.y += dy;
        } else {
            const place = this.layout.places.get(drag.node)!;
            this.layout.move(drag.node, { x: place.x + dx / this.scale, y: place.y + dy / this.scale });
        }
        this.redraw();
    }

    private up(event: PointerEvent): void {
        if (this.drag !== null && !this.drag.moved) {
            const chosen = this.hit(event.offsetX, event.offsetY);
            this.choose(chosen);
            if (chosen.node !== undefined && this.graph.nodes.get(chosen.node)!.members.length) this.onOpen(chosen.node);
        }
        else if (this.drag?.node) this.onMoved();
        this.drag = null;
    }

    choose(chosen: Chosen): void {
        this.chosen = chosen;
        this.onChoose(chosen);
        this.redraw();
    }

    /** Arrows look around, n and p go from router to router, Enter opens and folds a group. */
    private key(event: KeyboardEvent): void {
        const steps: Record<string, [number, number]> = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
        const step = steps[event.key];
        if (step !== undefined) [this.x, this.y, this.touched] = [this.x + step[0], this.y + step[1], true];
        else if (event.key === "+" || event.key === "=") this.zoom(1.25);
        else if (event.key === "-") this.zoom(0.8);
        else if (event.key === "0") this.fit();
        else if (event.key === "n" || event.key === "p") {
            const ids = [...this.graph.nodes.values()].filter((node) => !isDetail(node.kind) || this.chosen.node === node.at || this.graph.nodes.get(this.chosen.node ?? "")?.at === node.at).map((node) => node.id).sort();
            const at = ids.indexOf(this.chosen.node ?? "") + (event.key === "n" ? 1 : -1);
            const next = ids[(at + ids.length) % ids.length];
            if (next !== undefined) this.choose({ node: next });
        } else if (event.key === "Enter" && this.graph.nodes.get(this.chosen.node ?? "")?.members.length) this.onOpen(this.chosen.node!);
        else return;
        event.preventDefault();
        this.redraw();
    }
}

/** A middle that keeps `half` from both edges. */
function within(x: number, half: number, width: number): number {
    return width < 2 * half ? x : Math.max(half, Math.min(width - half, x));
}

function distanceTo(from: Place, to: Place, x: number, y: number): number {
    const [dx, dy] = [to.x - from.x, to.y - from.y];
    const share = Math.max(0, Math.min(1, ((x - from.x) * dx + (y - from.y) * dy) / (dx * dx + dy * dy || 1)));
    return Math.hypot(from.x + share * dx - x, from.y + share * dy - y);
}
