// The numbers behind a figure, folded away: every figure has its table.
import type { ComponentChildren } from 'preact';
import { number } from '../numbers';
import { explained } from './explained';

type Entry = ComponentChildren;

const Entry = ({ value, of }: { value: Entry; of: string }) => {
  if (typeof value !== 'number') return <td>{value ?? '–'}</td>;
  const text = Number.isInteger(value) ? number(value, 0) : number(Number(value.toPrecision(4)), 4).replace(/(\.\d*?)0+$/, '$1').replace(/\.$/, '');
  return (
    <td class="n" {...explained(of, { v: value }, false)}>
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
            {columns.map((name, i) =>
              rows.some((row) => typeof row[i] === 'number') ? (
                <th scope="col" class="n" {...explained(name)}>
                  {name}
                </th>
              ) : (
                <th scope="col">{name}</th>
              ),
            )}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr>
              {row.map((value, i) => (
                <Entry value={value} of={columns[i] ?? ''} />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  </details>
);
