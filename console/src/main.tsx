import { App } from "./app.ts";
import { show } from "./ui/root.tsx";

const app = new App(`${location.protocol === "https:" ? "wss:" : "ws:"}//${location.host}/`);
app.client.open();
show(app);
