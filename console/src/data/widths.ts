// Widths of the columns of a table, by what is in them.

/** title, text: letters of the title, and of the longest text; numeric: never cut; fixed: chosen by the reader, px. */
export interface Measured { title: number; text: number; numeric: boolean; fixed?: number | undefined }

const PADDING = 16; // px of a cell
const SIGN = 12; // px of the sign of the sort order in a head
const LEAST_TEXT = 150; // px of a column of texts that has to be cut
const READABLE_TEXT = 240; // px of such a column where other columns can be left out for it
const WIDE = 1.1; // of the average width of letters: short texts may have more wide ones
const SHORT = 14; // letters; shorter texts are never cut

export const LEAST_WIDTH = 40; // px that a reader may shrink a column to

/** px at which nothing of a column is cut. */
const whole = ({ title, text }: Measured, letter: number): number =>
    Math.ceil(Math.max(title * letter + SIGN, text * letter * (text <= SHORT ? WIDE : 1)) + PADDING);

/** px below which a column is not shrunk: its title, and all of a number or a short text. long: px of long texts. */
function least(column: Measured, letter: number, long: number): number {
    const head = column.title * letter + SIGN + PADDING;
    const all = whole(column, letter);
    return column.numeric || column.text <= SHORT ? all : Math.ceil(Math.max(head, Math.min(long, all)));
}

const MANY = 20; // texts among which a few long ones do not count

/** Return the length of the longest text, or of many texts that of 95 of 100: a few long ones may be cut. */
export function usualLength(lengths: number[]): number {
    const sorted = [...lengths].sort((one, other) => one - other);
    return sorted[sorted.length < MANY ? sorted.length - 1 : Math.floor(sorted.length * 0.95)] ?? 0;
}

/** rank: 1 columns stay, 3 are left out first; chosen: what the reader wants, if anything. */
export interface Ranked extends Measured { rank: number; chosen?: boolean | undefined }

/**
 * Return the indices of the columns to show on so many px: those that the reader chose, and of the others as many as leave
 * long texts readable.
 */
export function chooseColumns(columns: Ranked[], space: number, letter: number): number[] {
    let shown = columns.map((_, index) => index).filter((index) => columns[index]!.chosen !== false);
    const needed = (): number => shown.reduce((sum, index) => sum + (columns[index]!.fixed ?? least(columns[index]!, letter, READABLE_TEXT)), 0);
    for (const rank of [3, 2]) {
        for (const index of columns.map((_, each) => each).reverse()) {
            if (needed() <= space) return shown;
            if (columns[index]!.rank === rank && columns[index]!.chosen === undefined) shown = shown.filter((each) => each !== index);
        }
    }
    return shown;
}

/**
 * Return the widths in px of columns on so many px, with so many px for a letter. Numbers and short texts get what they need; long texts share the
 * rest by what they need. The widths sum up to more than the space if not even the least widths fit: the table scrolls.
 */
export function widthsOf(columns: Measured[], space: number, letter: number): number[] {
    const widths = columns.map((each) => Math.max(LEAST_WIDTH, each.fixed ?? least(each, letter, LEAST_TEXT)));
    let left = space - widths.reduce((sum, each) => sum + each, 0);
    const wants = columns.map((each, index) => (each.fixed === undefined ? Math.max(0, whole(each, letter) - widths[index]!) : 0));
    const wanted = wants.reduce((sum, each) => sum + each, 0);
    if (left > 0 && wanted > 0) {
        const share = Math.min(1, left / wanted);
        wants.forEach((want, index) => { widths[index]! += Math.floor(want * share); });
        left -= Math.floor(wanted * share);
    }
    // Space that nobody needs goes to texts, or to all if there are none.
    const takers = columns.map((each, index) => (each.fixed === undefined && !each.numeric ? index : -1)).filter((index) => index >= 0);
    const all = takers.length ? takers : columns.map((_, index) => index).filter((index) => columns[index]!.fixed === undefined);
    const given = all.reduce((sum, index) => sum + widths[index]!, 0);
    if (left > 0) for (const index of all) widths[index]! += Math.floor(left * widths[index]! / given);
    return widths;
}
