// The frames of a connection as they pass.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { useApp, useRoute, useScope } from "../ui/hooks.ts";
import { Head, Trouble } from "../ui/parts.tsx";
import { link } from "../ui/route.ts";

const MOST = 2000; // lines kept
const SECONDS = 600; // that the router sends, unless somebody starts again

interface Line { id: number; time: string; text: string }

export function Trace(): JSX.Element {
    const app = useApp();
    const { argument } = useRoute();
    const { targets, network } = useScope();
    const target = targets[0];
    const [lines, setLines] = useState<Line[]>([]);
    const [state, setState] = useState("");
    const [error, setError] = useState<string | null>(null);
    const [paused, setPaused] = useState(false);
    const [start, setStart] = useState(0);
    const still = useRef(false);
    const box = useRef<HTMLOListElement>(null);
    still.current = paused;

    useEffect(() => {
        if (target === undefined) return undefined;
        let [there, next] = [true, 0];
        let [fresh, due]: [Line[], number] = [[], 0];
        const flush = (): void => {
            due = 0;
            const more = fresh;
            fresh = [];
            if (there) setLines((before) => [...before, ...more].slice(-MOST));
        };
        const follows = (_: string, body: unknown): void => {
            if (!there || !Array.isArray(body)) return;
            if (body.length === 0) setState("It has ended.");
            if (still.current) return;
            for (const [seconds, text] of body as [number, string][]) {
                fresh.push({ id: next++, time: new Date(seconds * 1000).toISOString().slice(11, 23), text });
            }
            // A busy connection has thousands of frames a second; the page draws ten times in that time.
            if (!due) due = window.setTimeout(flush, 100);
        };
        setError(null);
        app.management.call(target, "TRACE", { connection: argument, seconds: SECONDS }, {}, follows).then(
            () => { if (there) setState("Live"); },
            (failed: Error) => { if (there) setError(failed.message); },
        );
        return () => {
            there = false;
            clearTimeout(due);
            app.client.forget(follows);
        };
    }, [target?.id, argument, start, network === undefined]);

    useEffect(() => {
        const list = box.current!;
        if (!paused) list.scrollTop = list.scrollHeight;
    }, [lines]);

    return (
        <>
            <Head title={`Frames of connection ${argument}`} about={target === undefined ? "" : `At router ${target.id}, as they pass. ${state}`}>
                <button type="button" aria-pressed={paused} onClick={() => setPaused(!paused)}>{paused ? "Go on" : "Pause"}</button>
                <button type="button" onClick={() => setLines([])}>Clear</button>
                {state !== "Live" && <button type="button" onClick={() => { setState(""); setStart(start + 1); }}>Start again</button>}
                <a class="button" href={link("connections", { router: target?.id ?? "", select: argument })}>Connection</a>
            </Head>
            <Trouble error={error} />
            <ol class="lines" ref={box} tabIndex={0} aria-label="Frames">
                {lines.map((line) => <li key={line.id}><time>{line.time}</time> {line.text}</li>)}
                {lines.length === 0 && error === null && <li class="nothing">No frame has passed yet.</li>}
            </ol>
        </>
    );
}
