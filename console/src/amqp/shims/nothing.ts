// Modules of Node that rhea names and does not use in a browser.
export {};
