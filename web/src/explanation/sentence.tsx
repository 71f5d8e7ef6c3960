// The sentence. Each token that it quotes stays in one piece, and right-to-left script leaves its neighbours in place.
import { useMemo } from 'preact/hooks';
import { readable } from '../text';

const escaped = (text: string): string => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

export const Prose = ({ text, quoted = [] }: { text: string; quoted?: readonly string[] | undefined }) => {
  const pattern = useMemo(() => (quoted.length ? new RegExp(`(${quoted.map(escaped).join('|')})`) : null), [quoted]);
  if (!pattern) return <>{readable(text)}</>;
  return <>{text.split(pattern).map((part, i) => (i % 2 ? <bdi class={[...part].length < 30 ? 'whole' : ''}>{readable(part)}</bdi> : readable(part)))}</>;
};
