// A text of one line that is cut in its middle where it has no room: both ends stay.
import type { JSX } from "preact";

const TAIL = 9; // letters that stay at the end
const SHORT = 20; // letters; shorter texts are cut at their end

export function Cut({ text }: { text: string }): JSX.Element {
    const letters = text.length > SHORT ? [...new Intl.Segmenter().segment(text)].map(({ segment }) => segment) : [];
    if (letters.length <= SHORT) return <>{text}</>;
    return (
        <span class="cut">
            <span>{letters.slice(0, -TAIL).join("")}</span>
            <span>{letters.slice(-TAIL).join("")}</span>
        </span>
    );
}
