declare module '*.css';
declare module 'headwise:inside' {
  export const inside: Record<string, unknown>;
}
