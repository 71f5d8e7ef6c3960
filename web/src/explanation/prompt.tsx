// The prompt as tokens, with the attention of one row as heat. Any token's row can be looked at.
import { useRef } from 'preact/hooks';
import type { Host } from '../host';
import { Figure } from '../kit/figure';
import { Numbers } from '../kit/numbers';
import { useTip } from '../kit/tip';
import { Shown, Tok } from '../kit/tokens';
import { number } from '../numbers';
import { pieces, visible } from '../text';
import type { Attention } from './attention';
import type { GrowingDocument } from './document';

interface PromptProps {
  data: GrowingDocument;
  attention: Attention | null;
  row: number;
  onRow: (row: number) => void;
  host: Host;
}

export const Prompt = ({ data, attention, row, onRow, host }: PromptProps) => {
  const box = useRef<HTMLDivElement>(null);
  const tip = useTip();
  const at = (key: number) => (attention ? (attention.holds(row, key) ? attention.at(row, key) : 0) : row === data.query && key === data.key ? (data.attention ?? 0) : 0);
  const walk = (event: KeyboardEvent) => {
    const buttons = [...(box.current?.querySelectorAll('button') ?? [])];
    const here = buttons.indexOf(document.activeElement as HTMLButtonElement);
    const to = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: buttons.length - 1 }[event.key];
    const next = to === undefined || here < 0 ? undefined : buttons[to];
    if (!next) return;
    event.preventDefault();
    next.focus();
  };
  const reads = Array.from(attention?.keys(row) ?? Array(row + 1).keys(), (key) => ({ key, a: at(key) })).sort((x, y) => y.a - x.a);
  return (
    <section class="prompt">
      <h2>Prompt</h2>
      <p class="soft">The heat is the attention of {data.head} in one row: what it reads while it is at the framed token.{attention ? ' Click another token, or walk with the arrow keys and press Enter, to see its row.' : ''}{attention?.picture && row !== data.query ? ' Of this row the page holds the strongest cells; the others have no heat.' : ''}</p>
      <Figure>
        <div class="tokens" role="group" aria-label="Prompt: choose the token whose row is shown" ref={box} onKeyDown={walk}>
          {data.tokens.map((text, i) => {
            const a = at(i);
            const marks = `${i === data.query ? ', explained query' : ''}${i === data.key ? ', explained key' : ''}`;
            const says = i > row ? `not seen from position ${row}` : attention && !attention.holds(row, i) ? `attention at most ${number(attention.at(row, i))}` : `attention ${number(a)}`;
            return (
              <>
                <button
                  type="button"
                  key={i}
                  class={`${i === data.query ? 'query' : ''} ${i === data.key ? 'key' : ''} ${Math.sqrt(a) > 0.52 ? 'hotter' : ''} ${i > row ? 'unseen' : ''}`}
                  style={{ '--a': Math.sqrt(a).toFixed(4) }}
                  aria-pressed={i === row}
                  aria-label={`${visible(text)}, position ${i}, ${says}${marks}`}
                  tabIndex={i === row ? 0 : -1}
                  disabled={!attention && i !== row}
                  onClick={() => onRow(i)}
                  {...tip.on(`${visible(text)} · position ${i}\n${says}`)}
                >
                  <bdi>{pieces(text).map((part) => (part.space ? <span class="ws">{part.text}</span> : part.text))}</bdi>
                </button>
                {text.includes('\n') ? <br /> : null}
              </>
            );
          })}
        </div>
        {attention ? (
          <p class="row" aria-live="polite">
            <Tok at={row} /> reads{' '}
            {reads.slice(0, 5).map(({ key, a }, i) => (
              <>
                {i ? ', ' : ''}
                <Tok at={key} /> {number(a)}
                {host.explain && (row !== data.query || key !== data.key) ? (
                  <button type="button" class="small explain" aria-label={`Why does it read position ${key}?`} onClick={() => host.explain?.({ head: data.head, query: row, key })}>
                    why?
                  </button>
                ) : null}
              </>
            ))}
          </p>
        ) : null}
        <div class="legend">
          <span>
            <i class="ramp" />
            attention 0 to 1 (root scale)
          </span>
          <span>
            <i class="framed" />
            row shown
          </span>
          <span>
            <i class="under query" />
            explained query
          </span>
          <span>
            <i class="under key" />
            explained key
          </span>
          {row === data.query ? null : (
            <button type="button" class="small back" onClick={() => onRow(data.query)}>
              back to the explained query
            </button>
          )}
        </div>
        {attention ? <Numbers title={reads.length > row ? 'Numbers of this row' : `Numbers of the ${reads.length} cells that are held of this row`} columns={['position', 'token', 'attention']} rows={reads.map(({ key, a }) => [key, <Shown text={data.tokens[key] ?? ''} />, a])} /> : null}
      </Figure>
    </section>
  );
};
