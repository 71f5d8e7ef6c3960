// A graph drawn: boxes for components, lines for what they wrote, tokens below. Boxes can be pointed at, walked through
// with the keyboard, and pinned.
import { useContext, useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { KnownNames } from '../kit/names';
import { nameLines } from '../kit/names';
import { useTip } from '../kit/tip';
import { Tokens } from '../kit/tokens';
import { number } from '../numbers';
import type { Graph, GraphEdge, GraphNode, Grouping, Line } from './graph';
import { channelsOf, quoted, roots } from './graph';
import type { Placed } from './layout';
import { course, layout } from './layout';

export const LINES: Record<Line, string> = { query: 'query side', key: 'key side', account: 'account through an MLP', answer: 'share of the answer' };
const MEANING: Record<Line, string> = { query: 'query side, attention taken', key: 'key side, attention taken', account: 'account through an MLP (not causal),', answer: 'share of the answer' };

const scaleOf = (e: GraphEdge): string => `${e.line === 'account'} ${e.unit}`;

/** A drawing that is a little too wide is drawn smaller; one that is much too wide scrolls. */
const SMALLEST = 0.8;

interface PictureProps {
  graph: Graph;
  by?: Grouping;
  pinned?: string | null;
  onPin?: (id: string | null) => void;
  found?: (node: GraphNode) => boolean;
  label: string;
  /** What a line's weight means, where the usual words do not fit. */
  meaning?: Partial<Record<Line, string>>;
  names?: KnownNames | null | undefined;
}

/** A node in words. */
export const useName = (): ((node: GraphNode) => string) => {
  const tokens = useContext(Tokens);
  return (node) => {
    const at = node.at === null ? '' : ` at ${quoted(tokens, node.at)} (${node.at})`;
    const reads = node.reads === null ? '' : node.reads === node.at ? ', reads itself' : `, reads ${quoted(tokens, node.reads)} (${node.reads})`;
    if (node.kind === 'answer') return `answer ${node.title}`;
    if (node.kind === 'group') return `${node.title}${node.sub ? ` (${node.sub})` : ''}${at}`;
    return `${node.title}${at}${reads}`;
  };
};

export const Picture = ({ graph, by = 'none', pinned = null, onPin, found, label, meaning = {}, names }: PictureProps) => {
  const tokens = useContext(Tokens);
  const tip = useTip();
  const nameOf = useName();
  const [pointed, setPointed] = useState<string | null>(null);
  const box = useRef<HTMLDivElement>(null);
  const plan = useMemo(() => layout(graph, by, tokens, (at) => quoted(tokens, at, 14)), [graph, by, tokens]);
  const root = roots(graph)[0];
  // A drawing wider than its box opens at the answer.
  useEffect(() => {
    const place = root === undefined ? undefined : plan.placed.get(root);
    if (!box.current || !place) return;
    const column = plan.columns.find((c) => c.at === place.node.at);
    const end = column ? column.x + column.wide + 16 : place.x + box.current.clientWidth / 2;
    const scale = (box.current.firstElementChild?.clientWidth ?? plan.width) / plan.width;
    box.current.scrollLeft = Math.min(end * scale - box.current.clientWidth, (place.x - place.wide) * scale);
  }, [plan, root]);

  const centre = pointed ?? pinned;
  const mine = (e: GraphEdge) => e.source === centre || e.target === centre;
  const near = useMemo(() => new Set(centre === null ? [] : [centre, ...graph.edges.filter(mine).flatMap((e) => [e.source, e.target])]), [centre, graph]);
  const most = useMemo(() => {
    // An account sums over all that read the MLP, so it may be far heavier than any cause: a scale for each.
    const made = new Map<string, number>();
    for (const e of graph.edges) made.set(scaleOf(e), Math.max(1e-9, made.get(scaleOf(e)) ?? 0, Math.abs(e.weight)));
    return made;
  }, [graph]);
  const says = { ...MEANING, ...meaning };

  const nodeText = (node: GraphNode): string => {
    const lines = [nameOf(node)];
    if (node.attention !== null) lines.push(`attention ${number(node.attention)}`);
    lines.push(...nameLines(names, node.names));
    const list = (title: string, edges: GraphEdge[], end: 'source' | 'target') => {
      if (!edges.length) return;
      lines.push(`${title}:`);
      for (const e of [...edges].sort((a, b) => Math.abs(b.weight) - Math.abs(a.weight)).slice(0, 6)) {
        const other = graph.nodes.get(e[end]);
        lines.push(`  ${number(e.weight)}  ${other ? nameOf(other) : e[end]}`);
      }
      if (edges.length > 6) lines.push(`  … ${edges.length - 6} more`);
    };
    for (const line of ['answer', 'query', 'key', 'account'] as const) list(LINES[line], graph.edges.filter((e) => e.target === node.id && e.line === line), 'source');
    list('feeds', graph.edges.filter((e) => e.source === node.id), 'target');
    return lines.join('\n');
  };
  const edgeText = (e: GraphEdge): string => {
    const ends = [e.source, e.target].map((id) => graph.nodes.get(id)).map((n) => (n ? nameOf(n) : '?'));
    const channels = e.channels.length ? `\n${e.channels.length === 1 ? 'channel' : 'channels'} ${channelsOf(e, 12)}` : '';
    return `${ends[0]} → ${ends[1]}\n${says[e.line]}${e.line === 'account' && !meaning.account ? ` of the ${e.unit === 'answer' ? 'answer' : 'attention taken'}` : ''} ${number(e.weight)}${e.size > 1 ? `, ${e.size} edges` : ''}${e.share === undefined ? '' : `, in ${Math.round(100 * e.share)} % of circuits`}${channels}${nameLines(names, e.names).map((line) => `\n${line}`).join('')}`;
  };
  const pin = (id: string) => onPin?.(pinned === id ? null : id);

  return (
    <div class="picture" ref={box} tabIndex={0} role="group" aria-label={label}>
      <svg width={plan.width} height={plan.height} viewBox={`0 0 ${plan.width} ${plan.height}`} style={{ maxWidth: `max(100%, ${Math.round(SMALLEST * plan.width)}px)` }} onClick={() => onPin?.(null)}>
        {plan.columns.map((c) => (
          <g>
            <rect class="col" x={c.x} y={2} width={c.wide} height={plan.floor - 2} rx={7} />
            {c.gap ? (
              <text x={c.x - 14} y={plan.floor + 18} text-anchor="middle">
                …
              </text>
            ) : null}
            {[18, plan.floor + 18].map((y) => (
              <text class="mono ink" x={c.x + c.wide / 2} y={y} text-anchor="middle">
                {quoted(tokens, c.at, 14)}
              </text>
            ))}
            <text x={c.x + c.wide / 2} y={plan.floor + 34} text-anchor="middle">
              {c.at}
            </text>
          </g>
        ))}
        {plan.rows.map((r) => (
          <text x={76} y={r.y + 4} text-anchor="end">
            {r.name}
          </text>
        ))}
        <g>
          {graph.edges.map((e) => {
            const [from, to] = [plan.placed.get(e.source), plan.placed.get(e.target)];
            if (!from || !to) return null;
            const state = centre === null ? '' : mine(e) ? 'hot' : 'dim';
            const thick = 1.2 + 6 * Math.sqrt(Math.abs(e.weight) / (most.get(scaleOf(e)) ?? 1));
            const words = edgeText(e);
            return <path key={e.id} class={`edge ${e.line} ${state}`} d={course(from, to, plan, by, e.line)} stroke-width={thick.toFixed(2)} onPointerMove={(event) => tip.at(event, words)} onPointerLeave={tip.quiet} />;
          })}
          {centre === null || by !== 'none' ? null : <Reading placed={plan.placed.get(centre)} plan={plan} />}
        </g>
        {[...plan.placed.values()].map(({ node, x, y, wide, high }) => {
          const words = nodeText(node);
          const state = centre === null ? '' : near.has(node.id) ? 'hot' : 'dim';
          const handlers = tip.on(words);
          return (
            <g
              key={node.id}
              class={`node ${node.kind} ${state} ${node.id === pinned ? 'pinned' : ''} ${node.marked ? 'marked' : ''} ${found?.(node) ? 'found' : ''}`}
              data-id={node.id}
              transform={`translate(${x - wide / 2},${y - high / 2})`}
              tabindex={0}
              role="button"
              aria-pressed={node.id === pinned}
              aria-label={`${node.title} ${node.sub}: ${words.replace(/\n\s*/g, ', ')}`}
              {...handlers}
              onPointerEnter={() => setPointed(node.id)}
              onPointerLeave={() => {
                handlers.onPointerLeave();
                setPointed(null);
              }}
              onClick={(event) => {
                event.stopPropagation();
                pin(node.id);
              }}
              onKeyDown={(event) => {
                if (event.key !== 'Enter' && event.key !== ' ') return;
                event.preventDefault();
                pin(node.id);
              }}
            >
              <rect width={wide} height={high} rx={node.kind === 'head' || node.kind === 'answer' ? 8 : 3} />
              <text class="ink strong" x={wide / 2} y={node.sub ? 14 : 15} text-anchor="middle">
                {node.title}
              </text>{' '}
              {node.sub ? (
                <text class="second" x={wide / 2} y={27} text-anchor="middle">
                  {node.sub}
                </text>
              ) : null}
            </g>
          );
        })}
      </svg>
    </div>
  );
};

/** From the token that a head reads to the head. */
const Reading = ({ placed, plan }: { placed: Placed | undefined; plan: { columns: { at: number; x: number; wide: number }[]; floor: number } }) => {
  const column = plan.columns.find((c) => c.at === placed?.node.reads);
  if (!placed || !column || placed.node.reads === placed.node.at) return null;
  const x = column.x + column.wide / 2;
  const end = placed.x + (x < placed.x ? -1 : 1) * (placed.wide / 2 + 2);
  return <path class="reading" d={`M${x},${plan.floor} C${x},${placed.y} ${(x + end) / 2},${placed.y} ${end},${placed.y}`} />;
};

export const LineKey = ({ lines }: { lines: readonly Line[] }) => (
  <div class="legend">
    {lines.map((line) => (
      <span>
        <svg class="keyline" width="34" height="10" aria-hidden="true">
          <path class={`edge ${line} hot`} d="M2,5 H32" stroke-width="3" />
        </svg>
        {LINES[line]}
      </span>
    ))}
  </div>
);
