// Texts of peers with all characters visible: names of addresses, links and clients are whatever a peer has sent.
import { options } from "preact";
import type { VNode } from "preact";

// Controls other than tab and line feed, formats (among them those that change the direction of text), separators of
// lines and paragraphs, and halves of characters. router/escapes.py writes them in the same way.
const UNSEEN = /(?![\t\n])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;
const TEXTS = ["title", "aria-label", "alt", "placeholder"]; // attributes that are shown or read aloud

function escaped(character: string): string {
    if (character === "\r") return "\\r";
    const digits = character.codePointAt(0)!.toString(16);
    if (digits.length <= 2) return `\\x${digits.padStart(2, "0")}`;
    return digits.length <= 4 ? `\\u${digits.padStart(4, "0")}` : `\\U${digits.padStart(8, "0")}`;
}

/** The text with what a reader could not see, or what would change how other characters are shown, as escapes. */
export function visible(text: string): string {
    return text.replace(UNSEEN, escaped);
}

/** Makes all texts of the page visible, whatever component renders them. Values of inputs stay as they are. */
export function showVisibly(): void {
    const before = options.vnode;
    options.vnode = (vnode: VNode): void => {
        const node = vnode as unknown as { type: unknown; props: unknown };
        if (node.type === null && typeof node.props === "string") node.props = visible(node.props);
        else if (typeof node.type === "string") {
            const props = node.props as Record<string, unknown>;
            for (const name of TEXTS) {
                const value = props[name];
                if (typeof value === "string") props[name] = visible(value);
            }
        }
        before?.(vnode);
    };
}
