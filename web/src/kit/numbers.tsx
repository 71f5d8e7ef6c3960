// The numbers behind a figure, folded away: every figure has its table.
import type { ComponentChildren } from 'preact';
import { number } from '../numbers';

type Entry = ComponentChildren;

const Entry = ({ value }: { value: Entry }) => {
  if (typeof value !== 'number') return <td>{value ?? '–'}</td>;
  const text = Number.isInteger(value) ? number(value, 0) : number(Number(value.toPrecision(4)), 4).replace(/(\.\d*?)0+$/, '$1').replace(/\.$/, '');
  return (
    <td class="n" title={String(value)}>
      {text}
    </td>
  );
};

export const Numbers = ({ columns, rows, title = 'Numbers' }: { columns: readonly string[]; rows: readonly (readonly Entry[])[]; title?: string }) => (
  <details class="numbers">
    <summary>{title}</summary>
    <div class="scroll" tabIndex={0} role="group" aria-label={title}>
      <table>
        <thead>
          <tr>
            {columns.map((name, i) => (
              <th scope="col" class={typeof rows[0]?.[i] === 'number' ? 'n' : ''}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr>
              {row.map((value) => (
                <Entry value={value} />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  </details>
);
