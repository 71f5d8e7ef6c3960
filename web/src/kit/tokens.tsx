// Tokens in running text: monospaced, white space marked, with their position.
import { createContext } from 'preact';
import { useContext } from 'preact/hooks';
import { isolated, pieces, short, visible } from '../text';

export const Tokens = createContext<readonly string[]>([]);

const Pieces = ({ text }: { text: string }) => <>{pieces(text).map((part) => (part.space ? <span class="ws">{part.text}</span> : part.text))}</>;

/** The token's text alone, as a prompt shows it. */
export const Shown = ({ text, most = 40 }: { text: string; most?: number }) => (
  <bdi class="tok">
    <Pieces text={short(text, most)} />
  </bdi>
);

/** A token of the prompt with its position. */
export const Tok = ({ at, most = 40 }: { at: number; most?: number }) => (
  <span class="at-token">
    <Shown text={useContext(Tokens)[at] ?? '?'} most={most} />
    <span class="at">{at}</span>
  </span>
);

/** The same where only text can be: in a label or a tooltip. */
export const useTokenText = (): ((at: number, most?: number) => string) => {
  const tokens = useContext(Tokens);
  return (at, most = 24) => `${isolated(short(visible(tokens[at] ?? '?'), most))} (${at})`;
};
