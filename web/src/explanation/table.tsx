// What × who as heat: a row per writer, a column per channel, margins as bars, the cause outlined.
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Host } from '../host';
import type { Range } from '../kit/bars';
import { Figure } from '../kit/figure';
import { rangeOf, Track } from '../kit/bars';
import { Caption } from '../kit/caption';
import { explained } from '../kit/explained';
import { Numbers } from '../kit/numbers';
import { TickBox } from '../kit/tick';
import { useTip } from '../kit/tip';
import { Tok, useTokenText } from '../kit/tokens';
import { number, share, signed } from '../numbers';
import { listed, plural } from '../text';
import type { ExplanationDocument, Row, Side } from './document';
import { SIDES } from './document';
import type { Column, Line } from './matrix';
import { channelNames, matrixOf, named } from './matrix';
import { CONTROLS, HINT, inTokens, SIDE_WORDS, spoken, WriterName } from './names';
import { Unfolded } from './through';

const FIRST = 12;

export const WhatAndWho = ({ data, host }: { data: ExplanationDocument; host: Host }) => {
  const [side, setSide] = useState<Side>(data.cause.headline ?? 'query');
  return (
    <section class="table">
      <h2>What and who</h2>
      {data.log_odds.keys < 2 ? (
        <p>There is only one token to read here, so its attention is 1 whatever anybody wrote: there is nothing to explain.</p>
      ) : (
        <>
          <p class="soft">
            <Caption of="table" /> Rows and columns both add up to {signed(data.log_odds.total)}, the log-odds above an even row.
          </p>
          <div class="switch" role="group" aria-label="Side of the table">
            {SIDES.map((one) => (
              <button type="button" class={one} aria-pressed={one === side} onClick={() => setSide(one)}>
                <b>{SIDE_WORDS[one].title}</b>
                <span>{SIDE_WORDS[one].says}</span>
              </button>
            ))}
          </div>
          {SIDES.map((one) => (
            // Both are there, so that paper has both.
            <SideTable data={data} side={one} hidden={one !== side} host={host} />
          ))}
        </>
      )}
    </section>
  );
};

const SideTable = ({ data, side, hidden, host }: { data: ExplanationDocument; side: Side; hidden: boolean; host: Host }) => {
  const [most, setMost] = useState(FIRST);
  const box = useRef<HTMLTableElement>(null);
  const { columns, helping, hindering, others } = matrixOf(data, side, most);
  // One stop for Tab: the first cell until another has had the focus.
  useEffect(() => {
    const table = box.current;
    const first = table?.querySelector<HTMLElement>('[data-cell]');
    if (first && !table?.querySelector('[data-cell][tabindex="0"]')) first.tabIndex = 0;
  });
  const lines = [...helping, ...hindering, ...(others ? [others] : [])];
  const range = rangeOf(lines.map((one) => one.row.log_odds));
  const strongest = Math.max(1e-9, ...lines.flatMap((one) => one.values.map(Math.abs)));
  const balance = data.log_odds[side];
  const total = data.who.filter((row) => row.side === side && row.writer !== 'others').length;
  const shown = helping.length + hindering.length;
  const cause = data.cause[side];
  const place = side === 'query' ? data.query : data.key;
  const shared = { data, columns, strongest, range, host };
  return (
    <Figure class={`side-table of-${side}`} hidden={hidden}>
      <figcaption>
        <b class={side}>{SIDE_WORDS[side].title}</b>: {SIDE_WORDS[side].says}, at <Tok at={place} most={18} />.{' '}
        {side === 'key' ? 'What a writer wrote at this token counts by how far it is above what it wrote at the others. ' : ''}
        {cause.writers.length ? (
          <>
            Outlined: the cause. Without {cause.writers.length === 1 ? 'this writer' : `these ${cause.writers.length} writers`} the attention is {share(cause.after)} instead of {share(data.attention)}
            {cause.diffuse ? '; so many are needed that the cause is diffuse.' : '.'}
          </>
        ) : (
          'No set of whole writers on this side takes the attention away.'
        )}
      </figcaption>
      <Balances helps={balance.helps} hinders={balance.hinders} total={data.log_odds.total} />
      <div class="grid-box">
        <table class="heat" role="grid" aria-label={`${SIDE_WORDS[side].title}: log-odds of writers by channels`} ref={box} onKeyDown={(event) => move(event, box.current)} onFocusIn={(event) => stopAt(event, box.current)}>
          <colgroup>
            <col class="c-writer" />
            {columns.map(({ block }) => (
              <col class={block ? 'c-block' : ''} />
            ))}
            <col class="c-bar" />
            <col class="c-sum" />
          </colgroup>
          <thead>
            <tr>
              <th scope="col" rowSpan={2}>
                writer
              </th>
              <th scope="colgroup" class="channels" colSpan={columns.length} {...explained('part')}>
                channel
              </th>
              <th scope="col" class="who" colSpan={2} rowSpan={2} {...explained('part')}>
                who: all channels
              </th>
            </tr>
            <tr>
              {columns.map((column) => (
                <th scope="col" class={`channel ${column.block ? 'block' : ''}`} title={column.name ?? `channel ${column.title}`}>
                  <span>{column.name !== null && !column.block ? column.name : column.title}</span>
                  {column.channels.includes('others') ? null : <TickBox host={host} what={{ kind: 'ch', side, channels: column.channels as number[] }} name={column.block ? 'all other channels' : `channel ${column.title}`} />}
                </th>
              ))}
            </tr>
          </thead>
          <Group name="helps" lines={helping} {...shared} />
          <Group name="hinders" lines={hindering} {...shared} />
          {others ? <Group name="rest" lines={[others]} {...shared} /> : null}
          <Feet columns={columns} total={data.log_odds.total} />
        </table>
      </div>
      {total > shown ? (
        <button type="button" class="small more-rows" onClick={() => setMost(total)}>
          show {plural(total - shown, 'more writer')}
        </button>
      ) : null}
      <Numbers
        columns={['writer', 'read', ...columns.map((column) => (column.block ? 'others' : `channel ${column.title}`)), 'all channels', 'cause']}
        rows={lines.map((one) => [spoken(one.row.writer, one.row.count), one.row.reads === null ? '' : <Tok at={one.row.reads} />, ...one.values, one.row.log_odds, one.row.cause ? 'yes' : ''])}
      />
      {cause.signals.length ? (
        <Numbers
          title="The cause in finer parts: single channels of single writers"
          columns={['writer', 'channels', 'attention taken']}
          rows={cause.signals.map((one) => [
            <>
              <TickBox host={host} what={{ kind: 'sg', side, ...one }} name={`${spoken(one.writer)} in channels ${channelNames(data, one.channels)}`} />
              <WriterName writer={one.writer} reads={one.reads} />
            </>,
            channelNames(data, one.channels),
            one.drop,
          ])}
        />
      ) : null}
      {data.signals?.side === side ? <Finer signals={data.signals} count={cause.signals.length} /> : null}
    </Figure>
  );
};

/** Whether the cause's signals do more than random removals of their length. */
const Finer = ({ signals, count }: { signals: NonNullable<ExplanationDocument['signals']>; count: number }) => (
  <p class="soft">
    In finer parts, single channels of {plural(count, 'writer')}, the cause leaves {share(signals.after)}
    {signals.controls.length ? `: ${signals.specific.said ? 'specific' : 'not specific'}, with ${listed(signals.controls.map((one) => `p = ${number(one.p)} against ${CONTROLS[one.name] ?? one.name}`))}` : ''}.
  </p>
);

/** Both totals: what helps and what hinders are far larger than what is left of them. */
const Balances = ({ helps, hinders, total }: { helps: number; hinders: number; total: number }) => {
  const span = helps - hinders || 1;
  return (
    <div class="balance">
      <span class="track" aria-hidden="true">
        <i class="fill neg" style={{ left: 0, width: `${(-100 * hinders) / span}%` }} />
        <i class="fill pos" style={{ left: `${(-100 * hinders) / span}%`, width: `${(100 * helps) / span}%` }} />
      </span>
      <span>
        all that hinders <b {...explained('hinders', { v: hinders })}>{signed(hinders)}</b> · all that helps <b {...explained('helps', { v: helps })}>{signed(helps)}</b> · together <b {...explained('together', { v: total })}>{signed(total)}</b>
      </span>
    </div>
  );
};

interface GroupProps {
  name: 'helps' | 'hinders' | 'rest';
  lines: readonly Line[];
  data: ExplanationDocument;
  columns: readonly Column[];
  strongest: number;
  range: Range;
  host: Host;
}
const Group = ({ name, lines, ...rest }: GroupProps) => {
  const title = { helps: 'helping', hinders: 'hindering', rest: '' }[name];
  if (!lines.length) return null;
  return (
    <tbody class={name}>
      {title ? (
        <tr class="group">
          <th scope="rowgroup" colSpan={rest.columns.length + 3}>
            {title}
          </th>
        </tr>
      ) : null}
      {lines.map((line) => (
        <Entry line={line} {...rest} />
      ))}
    </tbody>
  );
};

const Entry = ({ line, data, columns, strongest, range, host }: Omit<GroupProps, 'name' | 'lines'> & { line: Line }) => {
  const [open, setOpen] = useState(false);
  const tip = useTip();
  const tokenText = useTokenText();
  const { row, values } = line;
  const name = `${spoken(row.writer, row.count)}${row.reads === null ? '' : ` reading ${tokenText(row.reads)}`}`;
  const signal = `${data.head} ${row.side} ${row.writer}`;
  const tag = data.names?.signals[signal];
  const known = named(data, signal) + (row.reads === null ? '' : named(data, row.writer));
  const hint = known + (row.vocabulary ? HINT + inTokens(row.vocabulary) : '');
  const folds = row.through.length > 0 || row.neurons.length > 0;
  const explains = host.explain && row.side === 'query' && row.reads !== null;
  return (
    <>
      <tr class={row.cause ? 'cause' : ''}>
        <th scope="row">
          {row.writer === 'others' ? null : <TickBox host={host} what={{ kind: 'rm', side: row.side, writer: row.writer, reads: row.reads }} name={name} />}
          {folds ? (
            <button type="button" class="unfold-button" aria-expanded={open} aria-label={`What ${spoken(row.writer)} had read, and its neurons`} onClick={() => setOpen(!open)}>
              {open ? '▾' : '▸'}
            </button>
          ) : null}
          <span class="writer" {...(hint ? tip.on(name + hint) : {})}>
            {spoken(row.writer, row.count)}
            {row.cause ? <span class="mark">cause</span> : null}
          </span>
          {explains ? (
            <button type="button" class="small explain" onClick={() => host.explain?.({ head: row.writer, query: data.query, key: row.reads ?? 0 })}>
              why?
            </button>
          ) : null}
          <Beside row={row} />
          {tag?.text ? <span class="role">{tag.verdict}</span> : null}
        </th>
        {values.map((value, i) => {
          const column = columns[i] as Column;
          const words = `${name}\n${column.block ? column.name : `channel ${column.title}${column.name ? `, ${column.name}` : ''}`}\nlog-odds ${signed(value, 3)}${column.known}`;
          return (
            <td class={`cell ${value < 0 ? 'neg' : 'pos'} ${column.block ? 'block' : ''}`} role="gridcell" tabIndex={-1} data-cell={`${i}`} style={{ '--a': (Math.abs(value) / strongest).toFixed(3) }} aria-label={words.replace(/\n/g, ', ')} {...tip.on(words)} />
          );
        })}
        <td class="margin">
          <Track value={row.log_odds} range={range} kind={row.writer === 'others' ? 'plain' : undefined} />
        </td>
        <td class="n sum" role="gridcell" tabIndex={-1} data-cell={columns.length} {...tip.on(`${name}\nall channels: log-odds ${signed(row.log_odds, 3)}\nmultiplies the odds by ${number(Math.exp(row.log_odds), 2)}${hint}`)}>
          {signed(row.log_odds)}
        </td>
      </tr>
      {folds ? (
        <tr class="unfold" hidden={!open}>
          <td colSpan={columns.length + 3}>
            <Unfolded row={row} />
          </td>
        </tr>
      ) : null}
    </>
  );
};

const Beside = ({ row }: { row: Row }) =>
  row.reads === null && row.role === null ? null : (
    <span class="beside">
      {row.reads === null ? null : (
        <>
          read <Tok at={row.reads} most={14} />
        </>
      )}
      {row.role === null ? null : <span class="role">{row.role}</span>}
    </span>
  );

/** The sums of the columns: what was read, whoever wrote it. The same on both sides. */
const Feet = ({ columns, total }: { columns: readonly Column[]; total: number }) => {
  const tip = useTip();
  const most = Math.max(1e-9, ...columns.map((column) => Math.abs(column.total)));
  return (
    <tfoot>
      <tr class="what">
        <th scope="row">what: all writers</th>
        {columns.map((column, i) => (
          <td class="foot" role="gridcell" tabIndex={-1} data-cell={i} {...tip.on(`${column.block ? column.name : `channel ${column.title}${column.name ? `, ${column.name}` : ''}`}\nall writers: log-odds ${signed(column.total, 3)}${column.known}${column.vocabulary ? `${HINT}${inTokens(column.vocabulary.query, 'query: ')}${inTokens(column.vocabulary.key, 'key: ')}` : ''}`)}>
            <span class="up">
              <i class={`fill ${column.total < 0 ? 'neg' : 'pos'}`} style={{ height: `${(100 * Math.abs(column.total)) / most}%` }} />
            </span>
            <span class="value">{signed(column.total, 1)}</span>
          </td>
        ))}
        <td class="margin">together</td>
        <td class="n sum">{signed(total)}</td>
      </tr>
    </tfoot>
  );
};

const cellOf = (event: Event): HTMLElement | null => (event.target as Element).closest<HTMLElement>('[data-cell]');

const stopAt = (event: FocusEvent, table: HTMLTableElement | null) => {
  const cell = cellOf(event);
  if (!cell) return;
  for (const other of table?.querySelectorAll<HTMLElement>('[data-cell][tabindex="0"]') ?? []) other.tabIndex = -1;
  cell.tabIndex = 0;
};

/** Arrows walk from cell to cell. */
const move = (event: KeyboardEvent, table: HTMLTableElement | null) => {
  const cell = cellOf(event);
  const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!cell || !by || !table) return;
  event.preventDefault();
  const rows = [...table.querySelectorAll('tr')].filter((row) => row.querySelector('[data-cell]'));
  const at = rows.indexOf(cell.closest('tr') as HTMLTableRowElement);
  const next = rows[at + (by[0] as number)]?.querySelector<HTMLElement>(`[data-cell="${Number(cell.dataset['cell']) + (by[1] as number)}"]`);
  next?.focus();
};
