// The one function of Node's `util` that rhea uses.
type Class = { prototype: object };

export function inherits(made: Class & { super_?: Class }, base: Class): void {
    made.super_ = base;
    Object.setPrototypeOf(made.prototype, base.prototype);
}
