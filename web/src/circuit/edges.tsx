// The edges of a drawing as a table that sorts by every column.
import { useState } from 'preact/hooks';
import { explained } from '../kit/explained';
import type { KnownNames } from '../kit/names';
import { bestOf, Named } from '../kit/names';
import { number } from '../numbers';
import type { Graph, GraphEdge, GraphNode } from './graph';
import { channelsOf } from './graph';
import { LINES, useName } from './picture';

const FIELDS = ['from', 'to', 'kind', 'weight', 'channels'] as const;
type Field = (typeof FIELDS)[number];
const MOST = 400;

interface EdgesProps {
  graph: Graph;
  pinned: string | null;
  matches: ((node: GraphNode) => boolean) | null;
  onPick: (id: string) => void;
  names?: KnownNames | null | undefined;
  /** Take an edge away, where there is a bench. */
  onTry?: (edge: GraphEdge) => void;
}

export const Edges = ({ graph, pinned, matches, onPick, names, onTry }: EdgesProps) => {
  const [[field, direction], setSort] = useState<[Field, 1 | -1]>(['weight', -1]);
  const [all, setAll] = useState(false);
  const nameOf = useName();
  const name = (id: string): string => {
    const node = graph.nodes.get(id);
    return node ? nameOf(node) : id;
  };
  const fits = (id: string): boolean => {
    const node = graph.nodes.get(id);
    return node !== undefined && matches !== null && matches(node);
  };
  const value = (e: GraphEdge): string | number =>
    field === 'from' ? name(e.source) : field === 'to' ? name(e.target) : field === 'kind' ? LINES[e.line] : field === 'weight' ? e.weight : e.channels.length;
  const list = graph.edges
    .filter((e) => (pinned === null || e.source === pinned || e.target === pinned) && (matches === null || fits(e.source) || fits(e.target)))
    .sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      return direction * (x > y ? 1 : x < y ? -1 : 0);
    });
  const turn = (next: Field) => setSort([next, next === field ? (direction === 1 ? -1 : 1) : next === 'weight' || next === 'channels' ? -1 : 1]);
  const shared = graph.edges.some((e) => e.share !== undefined);
  const tries = onTry && list.some((e) => e.channels.length);
  const cut = all ? list : list.slice(0, MOST);
  return (
    <>
      <h2>{pinned === null ? 'Edges' : 'Its edges'}</h2>
      <div class="scroll edges" tabIndex={0} role="group" aria-label="Edges">
        <table>
          <thead>
            <tr>
              {FIELDS.map((one) => (
                <th scope="col" class={one === 'weight' ? 'n' : ''} {...(one === 'weight' ? explained(one, {}, false) : {})} aria-sort={one === field ? (direction === 1 ? 'ascending' : 'descending') : undefined}>
                  <button type="button" onClick={() => turn(one)}>
                    {one}
                    {one === field ? (direction === 1 ? ' ↑' : ' ↓') : ''}
                  </button>
                </th>
              ))}
              {shared ? (
                <th scope="col" class="n">
                  circuits
                </th>
              ) : null}
              {names ? <th scope="col">name</th> : null}
              {tries ? <th scope="col">bench</th> : null}
            </tr>
          </thead>
          <tbody>
            {cut.map((e) => (
              <tr key={e.id} class="pick" onClick={() => onPick(e.target)}>
                <td>{name(e.source)}</td>
                <td>{name(e.target)}</td>
                <td class={e.line}>{LINES[e.line]}</td>
                <td class="n" {...explained('weight', { v: e.weight }, false)}>
                  {number(e.weight)}
                </td>
                <td>{channelsOf(e)}</td>
                {shared ? <td class="n">{Math.round(100 * (e.share ?? 0))} %</td> : null}
                {names ? <td>{<Named names={names} signal={bestOf(names, e.names)} />}</td> : null}
                {tries ? (
                  <td>
                    {e.channels.length ? (
                      <button
                        type="button"
                        class="small"
                        onClick={(event) => {
                          event.stopPropagation();
                          onTry(e);
                        }}
                      >
                        take away
                      </button>
                    ) : null}
                  </td>
                ) : null}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {cut.length < list.length ? (
        <button type="button" class="small" onClick={() => setAll(true)}>
          show all {list.length}
        </button>
      ) : null}
    </>
  );
};
