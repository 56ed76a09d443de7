import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { useApp } from "./hooks.ts";

let written = ""; // the name stays while the router is asked

export function Login(): JSX.Element {
    const { client } = useApp();
    const [user, setUser] = useState(written);
    const [password, setPassword] = useState("");
    const go = (event: Event): void => {
        event.preventDefault();
        written = user;
        client.open({ user, password });
    };
    const local = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
    return (
        <main class="login">
            <form onSubmit={go}>
                <img src="icon.svg" alt="" width="48" height="48" />
                <h1>Sluice</h1>
                <p class="about">{location.host}</p>
                {client.reason && <p class="trouble" role="alert">{client.reason}</p>}
                <label>
                    <span>User</span>
                    <input name="username" autocomplete="username" autoFocus={written === ""} required value={user} onInput={(event) => setUser(event.currentTarget.value)} />
                </label>
                <label>
                    <span>Password</span>
                    <input name="password" type="password" autocomplete="current-password" autoFocus={written !== ""} required value={password} onInput={(event) => setPassword(event.currentTarget.value)} />
                </label>
                <button type="submit" class="primary">Log in</button>
                {location.protocol === "http:" && !local && (
                    <p class="note">This page came without TLS: others on the way may read the password.</p>
                )}
            </form>
        </main>
    );
}
