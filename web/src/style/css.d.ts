declare module '*.css';
declare module 'headwise:inside' {
  export const inside: readonly unknown[];
}
declare const headwise: { readonly inside: unknown[] };
