// Writers as a person reads them.
import { Tok } from '../kit/tokens';
import { isolated, visible } from '../text';
import type { Side, TokenEnds, VocabularyView, Writer } from './document';

/** "MLP20" is written "MLP 20"; a head keeps its short name. */
export const spoken = (writer: string, count = 1): string => {
  if (writer === 'others') return count > 1 ? `${count} others` : 'others';
  if (writer === 'offset') return 'own bias';
  if (writer === 'constants') return 'its own constants';
  return writer.replace(/^(MLP|bias)(\d+)$/, '$1 $2');
};

/** The layer that a writer's name tells: embedding and what has none are below the first. */
export const layerOf = (writer: string): number => Number(/^(?:L|MLP|bias)(\d+)/.exec(writer)?.[1] ?? -1);

export const WriterName = ({ writer, reads }: Writer) => (
  <>
    {spoken(writer)}
    {reads === null ? null : (
      <>
        {' '}
        reading <Tok at={reads} most={18} />
      </>
    )}
  </>
);

/** A direction in tokens, as a tooltip says it. */
export const inTokens = (view: VocabularyView | null, what = ''): string => {
  if (!view) return '';
  const some = (list: TokenEnds['most']) => list.map((one) => isolated(visible(one.token))).join(' ');
  return `\n${what}embeddings that point this way: ${some(view.embedding.most)}\n${what}would raise: ${some(view.unembedding.most)}, would lower: ${some(view.unembedding.least)}`;
};
export const HINT = '\nin tokens (a hint, not a name):';

/** Kinds of controls by name. */
export const CONTROLS: Record<string, string> = { channels: 'unused channels', writers: 'other writers', directions: 'random directions' };

export const SIDE_WORDS: Record<Side, { title: string; says: string }> = {
  query: { title: 'Query side', says: 'who wrote what the head looks for' },
  key: { title: 'Key side', says: 'who wrote what it finds there' },
};
