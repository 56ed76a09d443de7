// Where names and rates go on the picture of the network, so that none covers a node or another one.

export interface Box { left: number; top: number; right: number; bottom: number }

const CELL = 80; // px; a box is known in the cells that it touches

/** Boxes that are taken. */
export class Room {
    private readonly cells = new Map<number, Box[]>();

    take(box: Box): void {
        this.each(box, (key) => {
            const found = this.cells.get(key);
            if (found === undefined) this.cells.set(key, [box]);
            else found.push(box);
        });
    }

    /** The area that a box would share with others. */
    shared(box: Box): number {
        const others = new Set<Box>();
        this.each(box, (key) => { for (const other of this.cells.get(key) ?? []) others.add(other); });
        let area = 0;
        for (const other of others) {
            const width = Math.min(box.right, other.right) - Math.max(box.left, other.left);
            const height = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
            if (width > 0 && height > 0) area += width * height;
        }
        return area;
    }

    private each(box: Box, call: (key: number) => void): void {
        for (let row = Math.floor(box.top / CELL); row <= Math.floor(box.bottom / CELL); row += 1) {
            for (let column = Math.floor(box.left / CELL); column <= Math.floor(box.right / CELL); column += 1) {
                call(row * 65_536 + column);
            }
        }
    }
}

export interface Place { x: number; y: number }

export const HEIGHT = 15; // px of a line of text, with some air

/** The box of a text whose middle is at a place. */
export function boxOf({ x, y }: Place, width: number): Box {
    return { left: x - width / 2 - 2, top: y - HEIGHT / 2, right: x + width / 2 + 2, bottom: y + HEIGHT / 2 };
}

/** Where a node's name may be, the best first: below, above, beside, at the corners, and further off. */
export function around({ x, y }: Place, radius: number, width: number): Place[] {
    const [side, far] = [radius + 6 + width / 2, radius + 5 + HEIGHT / 2];
    const corner = radius * 0.7 + 4 + width / 2;
    return [
        { x, y: y + far }, { x, y: y - far }, { x: x + side, y }, { x: x - side, y },
        { x: x + corner, y: y + far }, { x: x - corner, y: y + far }, { x: x + corner, y: y - far }, { x: x - corner, y: y - far },
        { x, y: y + far + HEIGHT }, { x, y: y - far - HEIGHT },
    ];
}

/** Where a line's text may be: at its middle, or nearer to one of its ends. */
export function along(from: Place, to: Place): Place[] {
    return [0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74].map((share) => ({ x: from.x + (to.x - from.x) * share, y: from.y + (to.y - from.y) * share }));
}

/** A node's name in the forms that may stand for it, the best first, each with its width. */
export interface Named { at: Place; radius: number; forms: { text: string; width: number }[]; wanted: boolean }

/**
 * Place the names of nodes, the first ones first. A name without room is shortened, then left out; if it is wanted, it
 * covers others instead. fit: keeps a place in sight, given half the width.
 */
export function nameNodes(room: Room, named: Named[], fit: (place: Place, half: number, at: Place) => Place): ({ text: string; place: Place; width: number } | null)[] {
    for (const { at: { x, y }, radius } of named) room.take({ left: x - radius - 2, top: y - radius - 2, right: x + radius + 2, bottom: y + radius + 2 });
    return named.map(({ at, radius, forms, wanted }) => {
        for (const [index, { text, width }] of forms.entries()) {
            const places = around(at, radius, width).map((place) => fit(place, width / 2, at));
            const place = settle(room, places, width, wanted && index === forms.length - 1);
            if (place !== null) return { text, place, width };
        }
        return null;
    });
}

/** The first of some places where a text is alone; else, if it has to be shown, where it covers least. It is taken then. */
export function settle(room: Room, places: Place[], width: number, needed: boolean): Place | null {
    let [best, least]: [Place | null, number] = [null, Infinity];
    for (const place of places) {
        const shared = room.shared(boxOf(place, width));
        if (shared < least) [best, least] = [place, shared];
        if (shared === 0) break;
    }
    if (best === null || (least > 0 && !needed)) return null;
    room.take(boxOf(best, width));
    return best;
}
